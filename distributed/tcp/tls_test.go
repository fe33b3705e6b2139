package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/internal/secure"
)

// relay forwards the connections of a rank's listener; between handles the two
// ends of each. cut closes the listener and all connections, and waits for between.
func relay(t *testing.T, addr string, between func(dialled, accepted net.Conn)) (at string, cut func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	over, end := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", addr)
			if err != nil {
				_ = a.Close()
				continue
			}
			context.AfterFunc(over, func() { _, _ = a.Close(), b.Close() })
			all.Go(func() { between(a, b) })
		}
	})
	cut = func() {
		_ = ln.Close()
		end()
		all.Wait()
	}
	t.Cleanup(cut)
	return ln.Addr().String(), cut
}

// splice copies both ways until both have ended, and shows each piece.
func splice(a, b net.Conn, show func([]byte)) {
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		p := make([]byte, 1<<16)
		for {
			n, err := from.Read(p)
			show(p[:n])
			if _, werr := to.Write(p[:n]); err != nil || werr != nil {
				_, _ = to.Close(), from.Close()
				return
			}
		}
	}
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}

// TestNothingInClear: with TLS no part of small and large operations or of the
// proofs is readable on the way. Without TLS all parts are, which shows that this
// test can see them.
func TestNothingInClear(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		secret := []byte("a secret of sixty-four bytes, which is a multiple of the chunk..")
		var mu sync.Mutex
		var seen []byte
		m := listen(t, 2, Options{Threshold: 1 << 20, Encrypt: encrypt})
		at, _ := relay(t, m.links[0].Addrs[0], func(a, b net.Conn) {
			splice(a, b, func(p []byte) {
				mu.Lock()
				seen = append(seen, p...)
				mu.Unlock()
			})
		})
		m.links[1].Addrs = []string{at, m.links[1].Addrs[1]}
		m.join(t)
		for _, size := range []int{64, 640 << 10} {
			for r, err := range m.each(func(g *distributed.Group) error {
				out, in := bytes.Repeat(secret, size/64), make([]byte, 2*size)
				if err := g.AllGather(t.Context(), in, out); err != nil {
					return err
				}
				if !bytes.Equal(in, append(bytes.Clone(out), out...)) {
					return errors.New("not what was sent")
				}
				return nil
			}) {
				require.NoError(t, err, "rank %d, %d bytes", r, size)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		require.Greater(t, len(seen), 2*640<<10)
		for _, in := range [][]byte{secret, []byte("RMh1"), []byte("RMf1")} {
			require.Equal(t, !encrypt, bytes.Contains(seen, in), "%q", in)
		}
	})
}

// TestSomebodyBetween: an attacker who ends TLS with both ranks and forwards their
// messages has two sessions, and the proof of one is not valid in the other.
func TestSomebodyBetween(t *testing.T) {
	m := listen(t, 2, Options{Encrypt: true})
	var mu sync.Mutex
	var read []byte
	at, _ := relay(t, m.links[0].Addrs[0], func(a, b net.Conn) {
		splice(secure.Server(a), secure.Client(b), func(p []byte) {
			mu.Lock()
			read = append(read, p...)
			mu.Unlock()
		})
	})
	m.links[1].Addrs = []string{at, m.links[1].Addrs[1]}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	errs := m.connect(ctx)
	require.ErrorIs(t, errs[0], distributed.ErrBootstrap)
	require.ErrorIs(t, errs[1], distributed.ErrBootstrap)
	require.ErrorContains(t, errs[1], statusToken.String())
	mu.Lock()
	defer mu.Unlock()
	require.True(t, bytes.Contains(read, []byte("RMh1")), "it read the hello, so it was between")
}

// TestOnlyOneEncrypts: whichever side does not encrypt, the dialling rank says so.
func TestOnlyOneEncrypts(t *testing.T) {
	for _, dialler := range []bool{true, false} {
		plain, over := listen(t, 2, Options{}), listen(t, 2, Options{Encrypt: true})
		m := &mesh{groups: make([]*distributed.Group, 2), links: plain.links}
		m.transports = []distributed.Transport{plain.transports[0], over.transports[1]}
		want := secure.ErrPeerPlain.Error()
		if !dialler {
			m.transports = []distributed.Transport{over.transports[0], plain.transports[1]}
			m.links, want = over.links, statusEncrypts.String()
		}
		m.neverConnects(t, want)
	}
	a, b := net.Pipe()
	go func() {
		_, _ = a.Write([]byte{22, 3, 1, 2})
		_, _ = io.Copy(io.Discard, a)
	}()
	_, err := welcome(b, nil, nil)
	require.ErrorIs(t, err, secure.ErrPeerEncrypted)
}

// TestProofIsOfTheSession: the right token does not help in another session, nor
// without one.
func TestProofIsOfTheSession(t *testing.T) {
	m := listen(t, 2, Options{Encrypt: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := m.connecting(ctx)
	knock := func(bind bool) error {
		c := tls.Client(dialTo(t, m.links[0].Addrs[0]), &tls.Config{InsecureSkipVerify: true})
		token := m.links[0].Token
		if err := c.Handshake(); err != nil {
			return err
		}
		if bind {
			var err error
			if token, err = secure.Bind(c, token, bindPurpose); err != nil {
				return err
			}
		}
		return greet(c, hello{version: helloVersion, size: 2, epoch: 7, from: 1, to: 0, group: groupHash("test")}, token)
	}
	awaitRejection(t, statusToken, func() error { return knock(false) })
	require.NoError(t, knock(true))
	old := tls.Client(dialTo(t, m.links[0].Addrs[0]), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, old.Handshake(), "protocol version")
	cancel()
	<-done
}
