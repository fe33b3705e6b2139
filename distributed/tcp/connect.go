package tcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/internal/secure"
	"ringmaster/internal/network"
)

// sessionKey identifies a group that is being connected. It is needed because several
// groups of one transport, children or not, connect at the same time over one listener.
type sessionKey struct {
	epoch uint32
	group [32]byte // SHA-256 of the group id
}

// session is a group that is being connected. Transport.mu guards conns and
// problems.
type session struct {
	link     distributed.Link
	group    [32]byte      // SHA-256 of the group id
	conns    []*socket     // [Size], nil for this rank and for ranks not yet connected
	problems []error       // [Size], why the last attempt to dial each rank failed
	reached  []bool        // [Size], a connection to the rank was made, even if it failed later
	arrived  chan struct{} // [Size] one element for each accepted connection
	// giveUp is when a rank that was never reached counts as unreachable. undecided
	// counts the ranks that may still be reached before then; unreachable receives an
	// element for each that was not.
	giveUp      time.Time
	undecided   sync.WaitGroup
	unreachable chan struct{} // [Size]
}

var errUnreachable = errors.New("a rank cannot be reached")

// groupHash returns the fixed-length form in which a hello names a group.
func groupHash(id string) [32]byte { return sha256.Sum256([]byte(id)) }

// The minimum and maximum wait between attempts to dial.
const (
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = 500 * time.Millisecond
)

// Connect implements distributed.Transport. A rank dials the ranks below it and accepts
// connections from those above.
func (t *Transport) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	return t.connect(ctx, l, nil)
}

// connect makes a group. measured is nil, or for a child the parent's
// calibration.
func (t *Transport) connect(ctx context.Context, l distributed.Link, measured *Calibration) (*distributed.Group, error) {
	return distributed.Form(ctx, l, func(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
		conns, err := t.join(ctx, l)
		if err != nil {
			return nil, err
		}
		d, err := newDriver(t, l, measured, conns)
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("%w: %w", distributed.ErrBootstrap, err)
		}
		return d, nil
	})
}

// join makes the connections to all other ranks, [Size].
func (t *Transport) join(ctx context.Context, l distributed.Link) ([]*socket, error) {
	s := &session{
		link: l, group: groupHash(l.GroupID),
		conns: make([]*socket, l.Size), problems: make([]error, l.Size), reached: make([]bool, l.Size), arrived: make(chan struct{}, l.Size),
		giveUp: time.Now().Add(t.opts.ReachTimeout), unreachable: make(chan struct{}, l.Size),
	}
	key := sessionKey{l.Epoch, s.group}
	t.mu.Lock()
	busy, deaf := t.sessions[key] != nil, t.listener == nil
	if !busy && !deaf {
		t.sessions[key] = s
	}
	t.mu.Unlock()
	switch {
	case deaf:
		return nil, fmt.Errorf("%w: this transport does not listen; call Listen first", distributed.ErrBootstrap)
	case busy:
		return nil, fmt.Errorf("%w: this transport is already connecting that group", distributed.ErrBootstrap)
	}
	begun := time.Now()
	dialling, stop := context.WithCancel(ctx)
	var dials sync.WaitGroup
	s.undecided.Add(l.Rank)
	for p := range l.Rank {
		dials.Go(func() { t.dial(dialling, s, p) })
	}
	var err error
	for n := 1; n < l.Size && err == nil; n++ {
		select {
		case <-s.arrived:
		case <-s.unreachable:
			s.undecided.Wait() // until giveUp at most, so that the error names all of them
			err = errUnreachable
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	stop()
	t.mu.Lock()
	delete(t.sessions, key) // from now on commit adds no connection to the session
	t.mu.Unlock()
	dials.Wait()
	if err != nil {
		missing := s.missing(err, time.Since(begun))
		closeAll(s.conns)
		return nil, missing
	}
	return s.conns, nil
}

// dial connects to rank p. It retries until it succeeds, p is unreachable or ctx ends.
func (t *Transport) dial(ctx context.Context, s *session, p int) {
	decided := sync.OnceFunc(s.undecided.Done)
	defer decided()
	lost := false // the last attempt lost a message
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		c, reached, err := t.try(ctx, s, p, lost)
		// A single message may be late because a host is busy, so only two in a row
		// count as lost.
		unreachable := lost && network.Lost(err)
		lost = network.Lost(err)
		t.mu.Lock()
		if reached {
			s.reached[p] = true
			decided()
		}
		if err == nil && t.sessions[sessionKey{s.link.Epoch, s.group}] == s && s.conns[p] == nil {
			s.conns[p] = c
			s.arrived <- struct{}{}
			t.mu.Unlock()
			return
		}
		if !ended(ctx) {
			s.problems[p] = err // keep the last error before the time limit
		}
		unreachable = (unreachable || !s.reached[p]) && !time.Now().Before(s.giveUp)
		t.mu.Unlock()
		if unreachable && ctx.Err() == nil {
			s.unreachable <- struct{}{}
			return
		}
		if err == nil {
			_ = c.Close()
			return
		}
		if until := time.Until(s.giveUp); until > 0 {
			wait = min(wait, until)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// ended reports whether ctx has ended or its deadline has passed: a dial ends at that deadline
// by a timer of its own, which may be earlier than that of ctx.
func ended(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// try dials rank p once and authenticates both sides; reached says that the network made
// a connection. The last attempt ends when the session gives up.
func (t *Transport) try(ctx context.Context, s *session, p int, last bool) (c *socket, reached bool, err error) {
	h := hello{version: helloVersion, size: uint16(s.link.Size), epoch: s.link.Epoch, from: uint32(s.link.Rank), to: uint32(p), group: s.group}
	if _, err := io.ReadFull(t.opts.Rand, h.nonce[:]); err != nil {
		return nil, false, fmt.Errorf("random bytes: %w", err)
	}
	d := network.Dialer()
	d.Control, d.KeepAliveConfig = t.control, keepAlive
	if d.Deadline = s.giveUp; time.Until(s.giveUp) < firstBackoff {
		d.Deadline = time.Now().Add(t.opts.HandshakeTimeout)
	}
	conn, err := d.DialContext(ctx, "tcp", s.link.Addrs[p])
	if err != nil {
		return nil, false, err
	}
	until := time.Now().Add(t.opts.HandshakeTimeout)
	if last && time.Now().Before(s.giveUp) && until.After(s.giveUp) {
		until = s.giveUp
	}
	_ = conn.SetDeadline(until)
	cut := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c = &socket{TCPConn: conn.(*net.TCPConn)}
	err = t.greet(c, h, s.link.Token)
	if !cut() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() == nil {
			err = network.Silent(err)
		}
		return nil, true, err
	}
	return c, true, nil
}

// greet runs the dialler's side of the handshake, over TLS with Options.Encrypt.
func (t *Transport) greet(c *socket, h hello, token []byte) (err error) {
	if !t.opts.Encrypt {
		return greet(c, h, token)
	}
	if c.over, err = newChannel(c.TCPConn, secure.Client); err != nil {
		return err
	}
	if err := c.over.shake(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	if token, err = c.over.bind(token); err != nil {
		return err
	}
	return greet(c.over.tls, h, token)
}

// welcome runs the acceptor's side of the handshake, over TLS with
// Options.Encrypt.
func (t *Transport) welcome(c net.Conn) (*socket, hello, error) {
	if !t.opts.Encrypt {
		h, err := welcome(c, t.opts.Rand, t.admit)
		if err != nil {
			return nil, h, err
		}
		return &socket{TCPConn: c.(*net.TCPConn)}, h, nil
	}
	over, err := newChannel(c.(*net.TCPConn), secure.Server)
	if err != nil {
		return nil, hello{}, err
	}
	if err := over.shake(); err != nil {
		if errors.Is(err, secure.ErrPeerPlain) { // so that it can report this
			_, _ = c.Write(answer(statusEncrypts, make([]byte, 32), nil, nil))
		}
		return nil, hello{}, fmt.Errorf("TLS: %w", err)
	}
	h, err := welcome(over.tls, t.opts.Rand, func(h hello) ([]byte, status) {
		token, s := t.admit(h)
		if s != statusOK {
			return nil, s
		}
		bound, err := over.bind(token)
		if err != nil {
			return nil, statusToken
		}
		return bound, statusOK
	})
	return &socket{c.(*net.TCPConn), over}, h, err
}

// missing returns the error that names the unconnected ranks and what is known about
// each.
func (s *session) missing(cause error, elapsed time.Duration) error {
	var all distributed.UnconnectedError
	first := -1
	for p, c := range s.conns {
		if c != nil || p == s.link.Rank {
			continue
		}
		if first < 0 {
			first = p
		}
		m := distributed.Unconnected{Rank: p, Addr: s.link.Addrs[p], Dialled: p < s.link.Rank}
		if s.link.World != nil {
			m.Rank = s.link.World[p]
		}
		name := distributed.RankName(m.Rank, s.link.Host(p))
		switch problem := s.problems[p]; {
		case !m.Dialled:
			m.Addr = s.link.Addrs[s.link.Rank]
			_, port, _ := net.SplitHostPort(m.Addr) // this rank's own address always has a port
			m.Cause = fmt.Sprintf("%s at %s has not connected to this rank at %s (make sure that this host's firewall allows TCP to port %s)", name, s.link.Addrs[p], m.Addr, port)
		case problem != nil:
			m.Unreachable = !s.reached[p] || network.Lost(problem)
			m.Cause = fmt.Sprintf("%s at %s: %v%s", name, m.Addr, problem, network.Target{Addr: m.Addr, Who: name}.Cure(problem))
		default:
			m.Cause = fmt.Sprintf("%s at %s does not answer", name, m.Addr)
		}
		all.Missing = append(all.Missing, m)
	}
	addr := ""
	if first >= 0 {
		addr = s.link.Addrs[first]
	}
	return &distributed.OpError{Op: "connect", Rank: s.link.Rank, Peer: first, Addr: addr, World: s.link.World, Hosts: s.link.Hosts, Elapsed: elapsed,
		Err: fmt.Errorf("%w: %w; %w", distributed.ErrBootstrap, cause, &all)}
}

func closeAll(conns []*socket) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
