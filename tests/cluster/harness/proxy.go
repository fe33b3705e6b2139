package harness

import (
	"context"
	"net"
	"sync"
	"time"
)

// Proxy forwards connections from a rank to the address it dials and simulates a bad
// network. It may be used by several goroutines.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup

	mu      sync.Mutex
	delay   time.Duration
	alter   func(b []byte, back bool) []byte
	hole    chan struct{} // not nil while swallowing; closed at the end of that
	passed  int64
	conns   map[net.Conn]struct{}
	changed chan struct{} // closed and replaced when bytes have passed
}

// NewProxy listens on an address and forwards every connection to the target.
func NewProxy(listen, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, conns: map[net.Conn]struct{}{}, changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	return p, nil
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay delays every byte from now on by d; the bandwidth is not limited.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Alter makes f change every piece of data that passes; f may return b itself. back says
// that it comes from the target. Several goroutines call f.
func (p *Proxy) Alter(f func(b []byte, back bool) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alter = f
}

// Swallow makes all connections half-open: they stay open, but nothing passes in
// either direction, and neither end is notified.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole == nil {
		p.hole = make(chan struct{})
	}
}

// Drop closes all connections and ends Swallow: new connections are forwarded.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole != nil {
		close(p.hole)
		p.hole = nil
	}
	for c := range p.conns {
		_ = c.Close()
	}
}

// Passed waits until at least n bytes have passed in both directions together.
func (p *Proxy) Passed(ctx context.Context, n int64) error {
	for {
		p.mu.Lock()
		enough, changed := p.passed >= n, p.changed
		p.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops the proxy and closes its connections.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.Drop()
	p.all.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if !p.add(near) {
			return
		}
		p.all.Go(func() { p.serve(near) })
	}
}

// add registers a connection for Drop; after Close it closes it and returns false.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// serve forwards one connection until either side closes it.
func (p *Proxy) serve(near net.Conn) {
	defer p.remove(near)
	var d net.Dialer
	far, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil || !p.add(far) {
		return
	}
	defer p.remove(far)
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			p.forward(pair[0], pair[1], pair[0] == far)
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	both.Wait()
}

// packet is data that waits for its delivery time.
type packet struct {
	due  time.Time
	data []byte
}

// forward copies bytes from one connection to the other, with the delay at the time
// of their arrival.
func (p *Proxy) forward(from, to net.Conn, back bool) {
	queue := make(chan packet, 1024)
	var writer sync.WaitGroup
	writer.Go(func() { p.deliver(queue, from, to) })
	defer writer.Wait()
	defer close(queue)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		delay, hole, alter := p.delay, p.hole, p.alter
		p.mu.Unlock()
		if hole != nil {
			if err == nil {
				continue
			}
			// One end has closed; the other must not notice.
			select {
			case <-hole:
			case <-p.ctx.Done():
			}
			return
		}
		if n > 0 {
			data := append([]byte(nil), buf[:n]...)
			if alter != nil {
				data = alter(data, back)
			}
			select {
			case queue <- packet{time.Now().Add(delay), data}:
			case <-p.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes the packets of a queue at their time. If that fails it closes from,
// which ends forward.
func (p *Proxy) deliver(queue <-chan packet, from, to net.Conn) {
	for b := range queue {
		wait := time.NewTimer(time.Until(b.due))
		select {
		case <-wait.C:
		case <-p.ctx.Done():
			wait.Stop()
		}
		p.mu.Lock()
		swallow := p.hole != nil
		p.mu.Unlock()
		if swallow || p.ctx.Err() != nil {
			continue
		}
		if _, err := to.Write(b.data); err != nil {
			_ = from.Close() // ends forward
			continue
		}
		p.mu.Lock()
		p.passed += int64(len(b.data))
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}
