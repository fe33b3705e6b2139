// Package tcp is the data plane over TCP: a connection between every two ranks,
// made for each group and authenticated with the epoch token. New returns the
// transport; Transport.Listen makes the rank reachable, and Transport.Connect
// joins a group.
//
// Small operations are written and read by the caller's own goroutine, header and
// payload in one write, without waking another goroutine. Large ones run on a
// sender and a receiver for each peer and one goroutine that reduces, cut into
// chunks, so that sending, receiving and reducing overlap with each other and
// with whatever the caller does before Wait.
//
// # Credit
//
// A kernel gives up a connection if its peer keeps the receive window closed for
// some time, because TCP_USER_TIMEOUT counts that too. So a rank never sends more
// than the credit to a peer that has not shown, by a frame of its own, that it
// has reached the operation. A receiver without data to send in the operation
// sends an empty frame whenever the sizes, which both know, say that the sender
// needs one.
package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/internal/network"
)

// Transport is the distributed.Transport over TCP.
type Transport struct {
	opts Options

	mu       sync.Mutex
	listener net.Listener
	host     string                  // that listener listens on
	sessions map[sessionKey]*session // groups that are being connected
	running  sync.WaitGroup

	strangers *accept.Pending // connections whose handshake is under way
}

var _ distributed.Transport = (*Transport)(nil)

// New makes a transport that is not listening yet.
func New(o Options) distributed.Transport {
	o = o.withDefaults()
	return &Transport{opts: o, sessions: map[sessionKey]*session{}, strangers: accept.NewPending(o.MaxHandshakes)}
}

// Name returns "tcp".
func (t *Transport) Name() string { return "tcp" }

// control sets the socket buffers before a connection is made, because the size
// of the receive buffer determines the window scale.
func (t *Transport) control(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		setBuffers(int(fd), t.opts.Buffer)
		setUserTimeout(int(fd), t.opts.UserTimeout)
	})
}

// keepAlive notices a cut link while no data is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// Listen implements distributed.Transport. The system chooses the port, unless
// Options.Ports does.
func (t *Transport) Listen(host string) (string, error) {
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return "", fmt.Errorf("%w: the data plane must listen on one address of this host, because other ranks dial it; %q is not one", distributed.ErrConfig, host)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.listener
	if old != nil && host == t.host {
		return old.Addr().String(), nil // a fixed port cannot be opened twice
	}
	ln, err := t.opts.Ports.Listen(context.Background(), host, keepAlive, t.control)
	if err != nil {
		return "", fmt.Errorf("%w: the data plane cannot listen on %s: %w", distributed.ErrConfig, host, err)
	}
	t.listener, t.host = ln, host
	if old != nil {
		_ = old.Close()
	}
	t.running.Go(func() { t.accept(ln) })
	return ln.Addr().String(), nil
}

// Probe implements distributed.Transport: it makes a connection and closes it.
func (t *Transport) Probe(ctx context.Context, addr string) error {
	d := network.Dialer()
	d.Control = t.control
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// Close implements distributed.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	ln := t.listener
	t.listener = nil
	t.mu.Unlock()
	t.strangers.Close()
	if ln != nil {
		_ = ln.Close()
	}
	t.running.Wait()
	return nil
}

// accept accepts connections until the listener is closed.
func (t *Transport) accept(ln net.Listener) {
	for {
		c, err := accept.Next(ln, t.strangers.Evict, nil)
		if err != nil {
			return
		}
		t.mu.Lock()
		if t.listener != ln {
			t.mu.Unlock()
			_ = c.Close()
			continue
		}
		t.strangers.Add(c)
		t.running.Go(func() { t.shake(c) })
		t.mu.Unlock()
	}
}

// shake runs the handshake of an accepted connection and gives the connection
// to its session.
func (t *Transport) shake(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(t.opts.HandshakeTimeout))
	accepted, h, err := t.welcome(c)
	if !t.strangers.Remove(c) && err == nil {
		err = net.ErrClosed // accept.Pending closed it to make room
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil || !t.commit(h, accepted) {
		_ = c.Close()
	}
}

// admit returns the token with which a hello must authenticate, or the status
// that rejects it.
func (t *Transport) admit(h hello) ([]byte, status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[sessionKey{h.epoch, h.group}]
	switch {
	case s == nil:
		return nil, t.stranger(h.epoch)
	case int(h.size) != s.link.Size || int(h.to) != s.link.Rank || int64(h.from) <= int64(s.link.Rank) || int64(h.from) >= int64(s.link.Size):
		return nil, statusRank
	case s.conns[h.from] != nil:
		return nil, statusTaken
	}
	return s.link.Token, statusOK
}

// stranger returns the status for a hello that belongs to no session. mu is
// held.
func (t *Transport) stranger(epoch uint32) status {
	if len(t.sessions) == 0 {
		return statusNotReady
	}
	for k := range t.sessions {
		if k.epoch == epoch {
			return statusGroup
		}
	}
	return statusEpoch
}

// commit makes an authenticated connection a lane of the session that admitted
// it. It reports whether the session still needed one.
func (t *Transport) commit(h hello, c *socket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[sessionKey{h.epoch, h.group}]
	if s == nil || s.conns[h.from] != nil {
		return false
	}
	s.conns[h.from] = c
	s.arrived <- struct{}{}
	return true
}
