package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// maxHandshakes is how many connections may be in their handshake at once;
// more wait in the kernel's queue.
const maxHandshakes = 32

// ErrStopAll is the cause (context.Cause) that makes a follower, when its
// context ends, ask for the end of the whole group: a user pressed Ctrl-C.
var ErrStopAll = errors.New("interrupted by the user")

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.ConnectTimeout, 60 * time.Second}, {&c.PeerTimeout, 4 * time.Second},
		{&c.FormTimeout, 10 * time.Minute}, {&c.WorkTimeout, 5 * time.Minute},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Of a PeerTimeout: how often a sign of life is sent, and the time looked at.
func (c Config) heartbeat() time.Duration { return c.PeerTimeout / 16 }
func (c Config) tick() time.Duration      { return c.PeerTimeout / 40 }

// connectLimit bounds the joining of the data plane: every rank is ready, so it
// takes moments.
func (c Config) connectLimit() time.Duration { return max(c.PeerTimeout, 20*time.Second) }

// control is what the control connections go by.
func (c Config) control() control.Options {
	return control.Options{Key: c.Key, WriteTimeout: c.PeerTimeout / 4}
}

// Leader is rank 0 of a group. Its methods may be called by any goroutine.
type Leader struct {
	cfg      Config
	planner  Planner
	listener net.Listener
	ctx      context.Context // ends with the leader
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	done     chan struct{} // closed when the group has ended for good
	// suspicions of this rank's group, for keepTime.
	suspicions chan suspicion

	mu      sync.Mutex // guards all below
	m       *machine
	conns   map[int]*control.Conn
	nextID  int
	run     *run          // the epoch that forms or runs, nil between epochs
	changed chan struct{} // closed and made anew when the state has changed
	reports [][]byte      // [Size] the last report of each rank since the last question
	err     error         // why the group has ended
}

// run is an epoch on this rank.
type run struct {
	Epoch
	cancel context.CancelCauseFunc
}

// Lead listens at the coordinator's address and forms epochs until Close. It
// returns at once; Wait waits for the first epoch.
func Lead(ctx context.Context, cfg Config, p Planner) (*Leader, error) {
	cfg = cfg.withDefaults()
	listener, err := control.Listen(ctx, cfg.Coordinator, cfg.Key)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err == nil {
		cfg.Hello.Data, err = cfg.Transport.Listen(host)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("rank 0: data plane at %s: %w", host, err)
	}
	var id [16]byte
	rand.Read(id[:]) // never fails
	l := &Leader{
		cfg: cfg, planner: p, listener: listener,
		done: make(chan struct{}), conns: map[int]*control.Conn{}, changed: make(chan struct{}),
		suspicions: make(chan suspicion, 16),
		m: newMachine(rules{
			self: cfg.Hello, group: hex.EncodeToString(id[:]), describe: p.Describe,
			join: cfg.ConnectTimeout, silence: cfg.PeerTimeout, load: cfg.FormTimeout, connect: cfg.connectLimit(),
			work: cfg.WorkTimeout, grace: cfg.PeerTimeout / 10, pause: time.Second, final: cfg.Irreplaceable,
		}),
	}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && len(cfg.Key) == 0 && !tcp.IP.IsLoopback() {
		cfg.Log.Warn("the cluster has no key and listens on this address only: whoever reaches it can join; --cluster-key-file asks for a key", "address", tcp)
	}
	cfg.Log.Info("waiting for the other ranks", "address", listener.Addr(), "ranks", cfg.Hello.Size)
	l.wg.Add(2)
	go l.accept()
	go l.keepTime()
	l.event(func() { l.m.form() }) // a group of one needs nobody
	return l, nil
}

// Addr is where the leader listens.
func (l *Leader) Addr() net.Addr { return l.listener.Addr() }

// event runs f on the machine and does what comes of it.
func (l *Leader) event(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.act()
}

// act does what the machine wants; mu is held.
func (l *Leader) act() {
	for actions := l.m.take(); len(actions) > 0; actions = l.m.take() {
		for _, a := range actions {
			l.one(a)
		}
	}
}

func (l *Leader) one(a action) {
	switch a := a.(type) {
	case send:
		if c := l.conns[a.conn]; c != nil && c.Send(control.Frame{Type: uint16(a.m.Kind), Payload: a.m.encode()}) != nil {
			c.Close() // its reader tells the machine
		}
	case hangUp:
		if c := l.conns[a.conn]; c != nil {
			c.Close()
			delete(l.conns, a.conn)
		}
	case askPlan:
		settings, err := l.planner.Plan(a.members)
		if err != nil {
			l.m.unplanned(err.Error())
			return
		}
		var token [32]byte
		rand.Read(token[:]) // never fails
		l.m.planned(settings, token[:])
	case load:
		done, cancel := context.WithCancelCause(l.ctx)
		r := &run{Epoch{Number: a.epoch, Done: done}, cancel}
		l.run = r
		l.aside(r, kindFormed, func() error { return l.planner.Form(done, a.settings) })
	case connect:
		r := l.run
		l.aside(r, kindConnected, func() error { return l.join(r, a) })
	case start:
		r := l.run
		l.aside(r, kindRun, func() error { return l.planner.Start(r.Epoch) })
	case endEpoch:
		l.endRun(a.verdict)
	case begun, settled:
		l.broadcast()
		if b, ok := a.(begun); ok {
			l.cfg.Log.Info("the group runs", "epoch", b.epoch, "ranks", l.cfg.Hello.Size, "transport", l.run.Group.Kind())
		}
	case report:
		if l.reports != nil {
			l.reports[a.rank] = append([]byte{}, a.payload...)
			l.broadcast()
		}
	case giveUp:
		l.end(errors.New(a.reason))
	case stopAll:
		l.cfg.Log.Info("the group ends", "reason", a.reason)
		l.end(nil)
	case note:
		l.cfg.Log.Info(a.text)
	}
}

// aside does a rank's part of forming an epoch without holding up events.
func (l *Leader) aside(r *run, answer kind, do func() error) {
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		err := do()
		l.event(func() {
			switch {
			case err != nil && r.Done.Err() == nil:
				l.m.failed(0, r.Number, err.Error())
			case err != nil:
			case answer == kindRun:
				l.m.started(r.Number)
			default:
				l.m.selfAnswered(r.Number, answer)
			}
		})
	}()
}

// join makes the group of an epoch.
func (l *Leader) join(r *run, a connect) error {
	ctx, cancel := context.WithTimeout(r.Done, l.cfg.connectLimit())
	defer cancel()
	g, err := l.cfg.Transport.Connect(ctx, distributed.Link{
		Rank: 0, Size: l.cfg.Hello.Size, GroupID: l.m.group, Epoch: a.epoch, Token: a.token, Addrs: a.addrs,
		OpTimeout: l.cfg.WorkTimeout, VerdictTimeout: l.cfg.PeerTimeout,
		Suspect: func(peer int, cause error) {
			// Told to keepTime, for the group must not wait here; one that
			// finds no room is one of many that say the same.
			select {
			case l.suspicions <- suspicion{peer: peer, cause: cause.Error(), epoch: a.epoch}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	ended := r.Done.Err() != nil
	if !ended {
		r.Group = g
	}
	l.mu.Unlock()
	if ended {
		return errors.Join(context.Cause(r.Done), g.Close())
	}
	return nil
}

// endRun fails the group of the epoch and frees it; mu is held.
func (l *Leader) endRun(verdict error) {
	r := l.run
	if r == nil {
		return
	}
	l.run = nil
	r.cancel(verdict)
	if g := r.Group; g != nil {
		g.Fail(verdict)
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			if err := g.Close(); err != nil {
				l.cfg.Log.Warn("closing the group", "epoch", r.Number, "error", err)
			}
		}()
	}
	l.broadcast()
}

// end ends the leader for good; mu is held.
func (l *Leader) end(err error) {
	select {
	case <-l.done:
		return
	default:
	}
	l.err = err
	close(l.done)
	l.broadcast()
	l.listener.Close()
	for id, c := range l.conns {
		c.Close()
		delete(l.conns, id)
	}
	l.cancel()
}

// broadcast wakes who waits for a change; mu is held.
func (l *Leader) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// accept takes connections in until the listener is closed.
func (l *Leader) accept() {
	defer l.wg.Done()
	places := make(chan struct{}, maxHandshakes)
	for {
		nc, err := l.listener.Accept()
		if err != nil {
			if l.ctx.Err() == nil {
				l.event(func() { l.m.stop(fmt.Sprintf("accepting connections: %v", err), false) })
			}
			return
		}
		places <- struct{}{}
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			c, err := control.Server(l.ctx, nc, l.cfg.control())
			<-places
			if err != nil {
				nc.Close()
				l.cfg.Log.Warn("a connection was turned away", "from", nc.RemoteAddr(), "cause", err)
				return
			}
			l.read(c)
		}()
	}
}

// read gives the messages of a connection to the machine until it ends.
func (l *Leader) read(c *control.Conn) {
	defer c.Close()
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.nextID++
	id := l.nextID
	l.conns[id] = c
	l.m.connected(id, c.RemoteAddr().String())
	l.mu.Unlock()
	for {
		f, err := c.Receive()
		var msg message
		if err == nil {
			msg, err = decode(kind(f.Type), f.Payload)
		}
		if err != nil {
			l.event(func() { l.m.closed(id, closeCause(err)) })
			return
		}
		l.event(func() { l.m.receive(id, msg) })
	}
}

// keepTime moves the machine's time, sends signs of life and hears what this
// rank's group suspects.
func (l *Leader) keepTime() {
	defer l.wg.Done()
	t := time.NewTicker(l.cfg.tick())
	defer t.Stop()
	clock := newClock(l.cfg.tick())
	var beat time.Duration
	for {
		select {
		case <-l.ctx.Done():
			return
		case s := <-l.suspicions:
			l.event(func() { l.m.suspect(0, s.epoch, s.peer, s.cause) })
			continue
		case <-t.C:
		}
		l.event(func() {
			now := clock.now()
			l.m.tick(now)
			if now-beat >= l.cfg.heartbeat() {
				beat = now
				l.m.toAll(message{Kind: kindHeartbeat})
			}
		})
	}
}

// Wait returns when the first epoch runs, or why it does not.
func (l *Leader) Wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		ran, changed := l.m.everRan, l.changed
		l.mu.Unlock()
		if ran {
			return nil
		}
		select {
		case <-changed:
		case <-l.done:
			if err := l.Err(); err != nil {
				return err
			}
			return distributed.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Done is closed when the group has ended for good: after Close, or when a user
// ended it at another rank, or because of an error that Err tells.
func (l *Leader) Done() <-chan struct{} { return l.done }

// Err is why the group has ended, nil if it has not or if a user wanted it.
func (l *Leader) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Epoch is the epoch that runs, else why none does.
func (l *Leader) Epoch() (Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.m.state()
	if err != nil {
		return Epoch{Number: n}, err
	}
	return l.run.Epoch, nil
}

// Begin numbers a piece of work and sends it to the followers of the epoch.
func (l *Leader) Begin(epoch uint32, payload []byte) (n uint64, err error) {
	l.event(func() { n, err = l.m.begin(epoch, payload) })
	return n, err
}

// End tells that this rank has done work n, and waits until all ranks have done
// the work before n with equal digests. Its error is the verdict if the epoch
// has ended.
func (l *Leader) End(ctx context.Context, n uint64, d Digest) error {
	l.event(func() { l.m.done(0, n, d) })
	for {
		l.mu.Lock()
		settled, changed := l.m.ledger.settled, l.changed
		_, err := l.m.state()
		l.mu.Unlock()
		switch {
		case err != nil:
			return err
		case settled+1 >= n:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Fail ends the epoch because this rank could not do its work, and returns the
// verdict: it names another rank if the group has said which one it waited for.
func (l *Leader) Fail(epoch uint32, cause error) error {
	rank := 0
	if peer, ok := peerOf(cause); ok {
		rank = peer
	}
	var err error
	l.event(func() {
		l.m.failed(rank, epoch, cause.Error())
		_, err = l.m.state()
	})
	if err == nil { // an epoch of long ago
		err = cause
	}
	return err
}

// Reports asks every follower for its Report, when the work given so far is done,
// and waits for the answers, [Size]; that of this rank is nil. One question is
// asked at a time.
func (l *Leader) Reports(ctx context.Context) ([][]byte, error) {
	l.mu.Lock()
	if l.reports != nil {
		l.mu.Unlock()
		return nil, distributed.ErrBusy
	}
	l.reports = make([][]byte, l.cfg.Hello.Size)
	given, asked := l.m.ledger.given, false
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.reports = nil
		l.mu.Unlock()
	}()
	for {
		l.mu.Lock()
		_, err := l.m.state()
		if err == nil && !asked && l.m.ledger.settled >= given {
			asked = true
			l.m.toAll(message{Kind: kindReportPlease})
			l.act()
		}
		out, changed, missing := l.reports, l.changed, 0
		for r := 1; r < len(out); r++ {
			if out[r] == nil {
				missing++
			}
		}
		l.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case missing == 0:
			return out, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d ranks have not reported: %w", missing, context.Cause(ctx))
		}
	}
}

// Close ends the group: every rank is told the reason. It waits for what this
// rank still does in the group until ctx ends.
func (l *Leader) Close(ctx context.Context, reason string) error {
	l.event(func() { l.m.stop(reason, true) })
	ended := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return l.cfg.Transport.Close()
	case <-ctx.Done():
		return fmt.Errorf("rank 0 still works: %w", context.Cause(ctx))
	}
}
