package harness

import (
	"context"
	"net"
	"sync"
	"time"
)

// Proxy stands between a rank and the address it dials, and does to the
// connections what a bad network does. It may be used by any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup

	mu      sync.Mutex
	delay   time.Duration
	hole    chan struct{} // while swallowing; closed when that ends
	passed  int64
	conns   map[net.Conn]struct{}
	changed chan struct{} // closed when bytes have passed, then renewed
}

// NewProxy listens on an address and passes every connection to the target.
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

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes every byte that comes from now on arrive so much later; the
// bandwidth stays what it is.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Swallow makes all connections half-open: they stay, and nothing passes in
// either direction, now or later; neither end is told.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole == nil {
		p.hole = make(chan struct{})
	}
}

// Drop closes all connections, also those that Swallow has hit; new ones pass.
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

// Passed waits until at least n bytes have passed, both directions together.
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

// Close ends the proxy and all its connections.
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

// add keeps a connection for drop; it refuses one that comes after Close.
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

// serve passes one connection until either side ends.
func (p *Proxy) serve(near net.Conn) {
	defer p.remove(near)
	var d net.Dialer
	far, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil || !p.add(far) {
		return
	}
	defer p.remove(far)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			p.pass(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

// parcel is bytes on their way.
type parcel struct {
	due  time.Time
	data []byte
}

// pass moves bytes from one connection to the other, each as late as the
// delay was when it came.
func (p *Proxy) pass(from, to net.Conn) {
	way := make(chan parcel, 1024)
	var writer sync.WaitGroup
	writer.Go(func() { p.deliver(way, from, to) })
	defer writer.Wait()
	defer close(way)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		delay, hole := p.delay, p.hole
		p.mu.Unlock()
		if hole != nil {
			if err == nil {
				continue
			}
			// One end is gone; the other must not hear of it.
			select {
			case <-hole:
			case <-p.ctx.Done():
			}
			return
		}
		if n > 0 {
			select {
			case way <- parcel{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}:
			case <-p.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) deliver(way <-chan parcel, from, to net.Conn) {
	for b := range way {
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
			_ = from.Close() // ends the reader
			continue
		}
		p.mu.Lock()
		p.passed += int64(len(b.data))
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}
