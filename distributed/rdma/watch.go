package rdma

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"ringmaster/distributed"
)

// The watch is a TCP connection between every two ranks on which nothing is
// said but why a rank gives up. Its end is how the death of a process is seen
// where the queue pairs say nothing.

// letter: u32 length of the text, i32 the rank at fault or -1, u32 what it says,
// the text.
const (
	letterHead = 12
	letterMost = 4096

	gaveUp   = 0 // something has gone wrong
	farewell = 1 // the group was closed; what was sent before has left
	desynced = 2 // ranks do different things
)

type watch struct {
	rank    int
	conns   []net.Conn // [size], nil at this rank
	running sync.WaitGroup
	once    sync.Once
}

var watchKeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// proof is what a rank shows of the epoch's token. label keeps both sides' apart.
func proof(l *distributed.Link, label string, from, to int, nonces []byte) []byte {
	m := hmac.New(sha256.New, l.Token)
	fmt.Fprintf(m, "rdma watch %s %s %d %d %d ", label, l.GroupID, l.Epoch, from, to)
	m.Write(nonces)
	return m.Sum(nil)
}

const nonceSize = 16

// greet proves a connection that was dialled: rank and nonce there, nonce and
// proof back, proof there.
func greet(c net.Conn, l *distributed.Link, to int, random io.Reader) error {
	var hello [4 + nonceSize]byte
	binary.LittleEndian.PutUint32(hello[:], uint32(l.Rank))
	if _, err := io.ReadFull(random, hello[4:]); err != nil {
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
	if !hmac.Equal(answer[nonceSize:], proof(l, "accept", to, l.Rank, nonces)) {
		return fmt.Errorf("%w: the other side does not know the epoch's token", distributed.ErrBootstrap)
	}
	_, err := c.Write(proof(l, "dial", l.Rank, to, nonces))
	return err
}

// admit proves a connection that was accepted and returns its rank.
func admit(c net.Conn, l *distributed.Link, random io.Reader) (int, error) {
	var hello [4 + nonceSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return 0, err
	}
	from := int(binary.LittleEndian.Uint32(hello[:]))
	if from <= l.Rank || from >= l.Size {
		return 0, fmt.Errorf("%w: rank %d", distributed.ErrBootstrap, from)
	}
	answer := make([]byte, nonceSize, nonceSize+sha256.Size)
	if _, err := io.ReadFull(random, answer); err != nil {
		return 0, err
	}
	nonces := append(append([]byte(nil), hello[4:]...), answer...)
	if _, err := c.Write(append(answer, proof(l, "accept", l.Rank, from, nonces)...)); err != nil {
		return 0, err
	}
	var got [sha256.Size]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return 0, err
	}
	if !hmac.Equal(got[:], proof(l, "dial", from, l.Rank, nonces)) {
		return 0, fmt.Errorf("%w: the token is another", distributed.ErrBootstrap)
	}
	return from, nil
}

// listenWatch opens the port that higher ranks dial.
func listenWatch(ctx context.Context, host string) (net.Listener, error) {
	cfg := net.ListenConfig{KeepAliveConfig: watchKeepAlive}
	return cfg.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
}

// newWatch joins this rank to all others: it dials those below it and is
// dialled by those above. The listener is closed.
func newWatch(ctx context.Context, l *distributed.Link, ln net.Listener, addrs []string, random io.Reader) (*watch, error) {
	w := &watch{rank: l.Rank, conns: make([]net.Conn, l.Size)}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	cut := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer func() {
		cut()
		_ = ln.Close()
	}()
	deadline, _ := ctx.Deadline()
	fail := func(peer int, err error) (*watch, error) {
		w.close()
		return nil, fmt.Errorf("watch of rank %d: %w", peer, err)
	}
	for p := range l.Rank {
		d := net.Dialer{KeepAliveConfig: watchKeepAlive}
		c, err := d.DialContext(ctx, "tcp", addrs[p])
		if err != nil {
			return fail(p, err)
		}
		w.conns[p] = c
		if err := c.SetDeadline(deadline); err != nil {
			return fail(p, err)
		}
		if err := greet(c, l, p, random); err != nil {
			return fail(p, err)
		}
	}
	if err := w.admitAll(ctx, l, ln, random); err != nil {
		missing := l.Rank + 1
		for missing < l.Size-1 && w.conns[missing] != nil {
			missing++
		}
		return fail(missing, errors.Join(err, context.Cause(ctx)))
	}
	for p, c := range w.conns {
		if c != nil {
			if err := c.SetDeadline(time.Time{}); err != nil {
				return fail(p, err)
			}
		}
	}
	return w, nil
}

// admitAll waits for all higher ranks. Each connection proves itself on a
// goroutine of its own and may take as long as there is: neither a stranger nor a
// rank on a busy machine holds the others up. All goroutines have ended when it
// returns, and what is not a rank's is closed.
func (w *watch) admitAll(ctx context.Context, l *distributed.Link, ln net.Listener, random io.Reader) error {
	type arrival struct {
		from int
		c    net.Conn
		err  error // of the listener
	}
	ctx, cancel := context.WithCancel(ctx)
	came := make(chan arrival)
	tell := func(a arrival) bool {
		select {
		case came <- a:
			return true
		case <-ctx.Done():
			return false
		}
	}
	nonces := &oneReader{r: random}
	var running sync.WaitGroup
	defer func() {
		cancel()
		_ = ln.Close()
		running.Wait()
	}()
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				tell(arrival{err: err})
				return
			}
			running.Go(func() {
				cut := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
				from, err := admit(c, l, nonces)
				cut()
				if err != nil || !tell(arrival{from: from, c: c}) {
					_ = c.Close()
				}
			})
		}
	})
	for missing := l.Size - 1 - l.Rank; missing > 0; {
		select {
		case a := <-came:
			switch {
			case a.err != nil:
				return a.err
			case w.conns[a.from] != nil:
				_ = a.c.Close()
			default:
				w.conns[a.from] = a.c
				missing--
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// oneReader is a source of nonces for several goroutines.
type oneReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (o *oneReader) Read(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.Read(b)
}

// start reads until each connection ends, and tells what that means; a
// connection that ends without a letter is one that gave up.
func (w *watch) start(gone func(peer, culprit, what int, text string)) {
	for p, c := range w.conns {
		if c == nil {
			continue
		}
		w.running.Go(func() {
			var h [letterHead]byte
			if _, err := io.ReadFull(c, h[:]); err != nil {
				gone(p, p, gaveUp, "")
				return
			}
			text := make([]byte, min(binary.LittleEndian.Uint32(h[:]), letterMost))
			if _, err := io.ReadFull(c, text); err != nil {
				gone(p, p, gaveUp, "")
				return
			}
			gone(p, int(int32(binary.LittleEndian.Uint32(h[4:]))), int(binary.LittleEndian.Uint32(h[8:])), string(text))
		})
	}
}

// giveUp tells all ranks why this one ends, and ends the connections.
func (w *watch) giveUp(culprit, what int, text string) {
	w.once.Do(func() {
		text = text[:min(len(text), letterMost)]
		m := make([]byte, letterHead, letterHead+len(text))
		binary.LittleEndian.PutUint32(m, uint32(len(text)))
		binary.LittleEndian.PutUint32(m[4:], uint32(int32(culprit)))
		binary.LittleEndian.PutUint32(m[8:], uint32(what))
		m = append(m, text...)
		for _, c := range w.conns {
			if c != nil {
				_ = c.SetDeadline(time.Now().Add(letterTimeout))
				_, _ = c.Write(m) // who does not read it sees the end
			}
		}
	})
	w.close()
}

func (w *watch) close() {
	for _, c := range w.conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
