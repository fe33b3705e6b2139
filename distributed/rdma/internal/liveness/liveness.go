// Package liveness joins every two ranks of a group by a TCP connection. It is
// silent until a rank gives up and sends a notice that says why. It is needed
// because queue pairs do not always report the death of a process, while the end
// of a TCP connection does.
//
// Listen opens this rank's port, Connect joins all ranks, Watch reports the
// peers' notices, and End sends this rank's own.
package liveness

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/distributed/internal/secure"
	"ringmaster/internal/network"
)

// Reason is why a rank ends its connections.
type Reason int

// The reasons, as they stand in a notice.
const (
	GaveUp   Reason = 0 // a fault on the rank, or a suspicion
	Goodbye  Reason = 1 // the group was closed, and earlier sends have completed
	Desynced Reason = 2 // ranks run different operations
)

// Notice is a rank's last message. If the connection was lost without one, Reason
// is GaveUp, the peer itself is the culprit, and Text is empty.
type Notice struct {
	Peer    int // the sender
	Culprit int // the rank at fault, -1 for none
	Reason  Reason
	Text    string
}

// NoticeTimeout bounds the writing of a notice. So it also bounds the wait for a
// notice after another channel has ended.
const NoticeTimeout = 250 * time.Millisecond

// connectTimeout bounds Connect.
const connectTimeout = 30 * time.Second

// A notice on the wire, little-endian: u32 length of the text, i32 the rank at
// fault or -1, u32 reason, the text.
const (
	noticeHeader = 12
	mostText     = 4096
)

const nonceSize = 16

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// Connections are those of one rank to all others.
type Connections struct {
	conns   []net.Conn // [ranks], nil at this rank; those of TLS where that encrypts
	encrypt bool
	running sync.WaitGroup
	once    sync.Once
}

// proof is what a rank shows of the epoch's token. label separates the two
// directions.
func proof(l *distributed.Link, token []byte, label string, from, to int, nonces []byte) []byte {
	m := hmac.New(sha256.New, token)
	fmt.Fprintf(m, "rdma liveness %s %s %d %d %d ", label, l.GroupID, l.Epoch, from, to)
	m.Write(nonces)
	return m.Sum(nil)
}

// bound returns the token that both sides of a connection prove: that of the
// epoch, over TLS that of the session.
func bound(c net.Conn, l *distributed.Link) ([]byte, error) {
	over, ok := c.(*tls.Conn)
	if !ok {
		return l.Token, nil
	}
	if err := over.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake failed; check that every rank has --cluster-encrypt: %w", err)
	}
	return secure.Bind(over, l.Token, bindPurpose)
}

// bindPurpose separates the proofs over TLS from others.
const bindPurpose = "ringmaster liveness: proofs over TLS"

// greet authenticates a connection that was dialled: rank and nonce to the
// peer, nonce and proof back, proof to the peer.
func greet(c net.Conn, l *distributed.Link, to int) error {
	token, err := bound(c, l)
	if err != nil {
		return err
	}
	var hello [4 + nonceSize]byte
	binary.LittleEndian.PutUint32(hello[:], uint32(l.Rank))
	if _, err := io.ReadFull(rand.Reader, hello[4:]); err != nil {
		return err
	}
	if _, err := c.Write(hello[:]); err != nil {
		return err
	}
	var answer [nonceSize + sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	nonces := append(append([]byte(nil), hello[4:]...), answer[:nonceSize]...)
	if !hmac.Equal(answer[nonceSize:], proof(l, token, "accept", to, l.Rank, nonces)) {
		return fmt.Errorf("%w: the peer does not have the epoch's token", distributed.ErrBootstrap)
	}
	_, err = c.Write(proof(l, token, "dial", l.Rank, to, nonces))
	return err
}

// admit authenticates a connection that was accepted and returns its rank.
func admit(c net.Conn, l *distributed.Link) (int, error) {
	token, err := bound(c, l)
	if err != nil {
		return 0, err
	}
	var hello [4 + nonceSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return 0, err
	}
	from := int(binary.LittleEndian.Uint32(hello[:]))
	if from <= l.Rank || from >= l.Size {
		return 0, fmt.Errorf("%w: rank %d", distributed.ErrBootstrap, from)
	}
	answer := make([]byte, nonceSize, nonceSize+sha256.Size)
	if _, err := io.ReadFull(rand.Reader, answer); err != nil {
		return 0, err
	}
	nonces := append(append([]byte(nil), hello[4:]...), answer...)
	if _, err := c.Write(append(answer, proof(l, token, "accept", l.Rank, from, nonces)...)); err != nil {
		return 0, err
	}
	var got [sha256.Size]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return 0, err
	}
	if !hmac.Equal(got[:], proof(l, token, "dial", from, l.Rank, nonces)) {
		return 0, fmt.Errorf("%w: the peer does not have the epoch's token", distributed.ErrBootstrap)
	}
	return from, nil
}

// Listen opens the port that higher ranks dial: the first free one of ports.
func Listen(ctx context.Context, host string, ports network.Ports) (net.Listener, error) {
	return ports.Listen(ctx, host, keepAlive, nil)
}

// Connect joins this rank to all others: it dials those below it and accepts
// those above. addrs [ranks] are the addresses of the listeners. It closes the
// listener. With encrypt the connections use TLS 1.3, on all ranks or on none.
// Errors name the missing rank.
func Connect(ctx context.Context, l *distributed.Link, ln net.Listener, addrs []string, encrypt bool) (*Connections, error) {
	x := &Connections{conns: make([]net.Conn, l.Size), encrypt: encrypt}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer func() {
		stop()
		_ = ln.Close()
	}()
	fail := func(peer int, err error) (*Connections, error) {
		x.Close()
		return nil, fmt.Errorf("liveness connection to rank %d: %w", peer, err)
	}
	for p := range l.Rank {
		c, err := x.dial(ctx, l, p, addrs[p])
		if err != nil {
			return fail(p, err)
		}
		x.conns[p] = c
	}
	if err := x.admitAll(ctx, l, ln); err != nil {
		missing := l.Rank + 1
		for missing < l.Size-1 && x.conns[missing] != nil {
			missing++
		}
		return fail(missing, errors.Join(err, context.Cause(ctx)))
	}
	for p, c := range x.conns {
		if c != nil {
			if err := c.SetDeadline(time.Time{}); err != nil {
				return fail(p, err)
			}
		}
	}
	return x, nil
}

// The minimum and maximum pause between attempts to dial.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// dial connects to a lower rank and authenticates both sides. If the connection
// ends in the handshake, it dials again until ctx ends, because the peer may have
// closed it to make room for others. A refused connection means that the rank is
// gone.
func (x *Connections) dial(ctx context.Context, l *distributed.Link, to int, addr string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		d := network.Dialer()
		d.KeepAliveConfig = keepAlive
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		if x.encrypt {
			c = secure.Client(c)
		}
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		if err = c.SetDeadline(deadline); err == nil {
			err = greet(c, l, to)
		}
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			return c, nil
		}
		_ = c.Close()
		if errors.Is(err, distributed.ErrBootstrap) || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// admitAll waits for all higher ranks. Each connection authenticates on its own
// goroutine within the whole time limit, so that neither a stranger nor a rank on
// a busy host delays the others. Strangers are limited in number and make room
// for newer connections. Of the errors of accepting, only a closed ln ends it.
// When it returns, all goroutines have ended, and connections that belong to no
// rank are closed.
func (x *Connections) admitAll(ctx context.Context, l *distributed.Link, ln net.Listener) error {
	type arrival struct {
		from int
		c    net.Conn
		err  error // of the listener
	}
	ctx, cancel := context.WithCancel(ctx)
	arrivals := make(chan arrival)
	deliver := func(a arrival) bool {
		select {
		case arrivals <- a:
			return true
		case <-ctx.Done():
			return false
		}
	}
	strangers := accept.NewPending(accept.DefaultLimit())
	var running sync.WaitGroup
	defer func() {
		cancel()
		_ = ln.Close()
		strangers.Close()
		running.Wait()
	}()
	running.Go(func() {
		for {
			c, err := accept.Next(ln, strangers.Evict, nil)
			if err != nil {
				deliver(arrival{err: err})
				return
			}
			strangers.Add(c)
			running.Go(func() {
				conn := c
				if x.encrypt {
					conn = secure.Server(c)
				}
				from, err := admit(conn, l)
				if !strangers.Remove(c) && err == nil {
					err = net.ErrClosed // closed to make room, or at the end
				}
				if err != nil || !deliver(arrival{from: from, c: conn}) {
					_ = c.Close()
				}
			})
		}
	})
	for missing := l.Size - 1 - l.Rank; missing > 0; {
		select {
		case a := <-arrivals:
			switch {
			case a.err != nil:
				return a.err
			case x.conns[a.from] != nil:
				_ = a.c.Close()
			default:
				x.conns[a.from] = a.c
				missing--
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Watch reads every connection, each on a goroutine, until it ends, and reports
// the peer's notice.
func (x *Connections) Watch(report func(Notice)) {
	for p, c := range x.conns {
		if c != nil {
			x.running.Go(func() { report(read(c, p)) })
		}
	}
}

func read(c net.Conn, peer int) Notice {
	lost := Notice{Peer: peer, Culprit: peer, Reason: GaveUp}
	var h [noticeHeader]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return lost
	}
	text := make([]byte, min(binary.LittleEndian.Uint32(h[:]), mostText))
	if _, err := io.ReadFull(c, text); err != nil {
		return lost
	}
	return Notice{Peer: peer, Culprit: int(int32(binary.LittleEndian.Uint32(h[4:]))),
		Reason: Reason(binary.LittleEndian.Uint32(h[8:])), Text: string(text)}
}

// End sends all ranks the reason why this rank ends, and closes the connections.
// Only the first call sends its notice.
func (x *Connections) End(culprit int, reason Reason, text string) {
	x.once.Do(func() {
		text = text[:min(len(text), mostText)]
		m := make([]byte, noticeHeader, noticeHeader+len(text))
		binary.LittleEndian.PutUint32(m, uint32(len(text)))
		binary.LittleEndian.PutUint32(m[4:], uint32(int32(culprit)))
		binary.LittleEndian.PutUint32(m[8:], uint32(reason))
		m = append(m, text...)
		for _, c := range x.conns {
			if c != nil {
				_ = c.SetDeadline(time.Now().Add(NoticeTimeout))
				_, _ = c.Write(m) // a peer that does not read it sees the connection end
			}
		}
	})
	x.Close()
}

// Close closes the connections without a notice.
func (x *Connections) Close() {
	for _, c := range x.conns {
		if over, ok := c.(*tls.Conn); ok {
			c = over.NetConn() // because closing TLS could wait for a peer that does not read
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// Wait returns when the goroutines of Watch have ended; Close or End comes first.
func (x *Connections) Wait() { x.running.Wait() }
