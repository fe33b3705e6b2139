package liveness

import (
	"bytes"
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/internal/network"
)

// bounded returns a context that ends a test that hangs.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// result is what a call in progress returns.
type result[T any] struct {
	value T
	err   error
}

// started begins a call in the background.
func started[T any](call func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		value, err := call()
		done <- result[T]{value, err}
	}()
	return done
}

// listening returns the listener of a rank.
func listening(ctx context.Context, t *testing.T) net.Listener {
	ln, err := Listen(ctx, "127.0.0.1", network.Ports{})
	require.NoError(t, err)
	return ln
}

// TestAdmits: a silent stranger, one with another token, and a rank that
// connects first and proves itself last keep no rank out.
func TestAdmits(t *testing.T) {
	ctx := bounded(t)
	link := func(r int) *distributed.Link {
		return &distributed.Link{Rank: r, Size: 3, GroupID: "liveness", Epoch: 4, Token: bytes.Repeat([]byte{3}, 32)}
	}
	ln := listening(ctx, t)
	done := started(func() (*Connections, error) { return Connect(ctx, link(0), ln, make([]string, 3), false) })
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return c
	}
	silent, slow := dial(), dial()
	wrong := link(1)
	wrong.Token = bytes.Repeat([]byte{4}, 32)
	require.ErrorIs(t, greet(dial(), wrong, 0), distributed.ErrBootstrap)
	require.NoError(t, greet(dial(), link(2), 0))
	require.NoError(t, greet(slow, link(1), 0))
	r := <-done
	require.NoError(t, r.err)
	require.NotNil(t, r.value.conns[1])
	require.NotNil(t, r.value.conns[2])
	_, err := silent.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a stranger's connection is closed")
	r.value.Close()

	// The error names a rank that does not connect.
	ln = listening(ctx, t)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err = Connect(short, link(1), ln, []string{ln.Addr().String(), "", ""}, false)
	require.ErrorContains(t, err, "liveness connection to rank 0")
	ln = listening(ctx, t)
	_, err = Connect(short, link(0), ln, make([]string, 3), false)
	require.ErrorContains(t, err, "liveness connection to rank 1")
}

// link returns the link of rank r of two.
func link(r int) *distributed.Link {
	return &distributed.Link{Rank: r, Size: 2, GroupID: "liveness", Epoch: 4, Token: bytes.Repeat([]byte{3}, 32)}
}

// connecting is a Connect of rank 0 in progress.
func connecting(ctx context.Context, ln net.Listener) <-chan error {
	done := make(chan error, 1)
	go func() {
		x, err := Connect(ctx, link(0), ln, make([]string, 2), false)
		if err == nil {
			x.Close()
		}
		done <- err
	}()
	return done
}

// flaky fails to accept some connections first.
type flaky struct {
	net.Listener
	errs []syscall.Errno
}

func (l *flaky) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	return l.Listener.Accept()
}

// TestOutlivesErrorsOfAccept: a full table of files, or a connection that ended
// before it was accepted, keeps no rank out.
func TestOutlivesErrorsOfAccept(t *testing.T) {
	ctx := bounded(t)
	ln := listening(ctx, t)
	done := connecting(ctx, &flaky{ln, []syscall.Errno{syscall.ECONNABORTED, syscall.EMFILE, syscall.EMFILE}})
	c, err := (&Connections{}).dial(ctx, link(1), 0, ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, <-done)
}

// TestStrangersMakeRoom: only a bounded number of silent connections is kept,
// and a rank can still join.
func TestStrangersMakeRoom(t *testing.T) {
	ctx := bounded(t)
	ln := listening(ctx, t)
	done := connecting(ctx, ln)
	const more = 20
	var strangers []net.Conn
	for range accept.DefaultLimit() + more {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		strangers = append(strangers, c)
	}
	for _, c := range strangers[:more] {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the oldest make room")
	}
	c, err := (&Connections{}).dial(ctx, link(1), 0, ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, <-done)
}

// TestDialsAgain: a rank whose connection was ended in the handshake to make
// room tries again.
func TestDialsAgain(t *testing.T) {
	ctx := bounded(t)
	ln := listening(ctx, t)
	dialled := started(func() (net.Conn, error) { return (&Connections{}).dial(ctx, link(1), 0, ln.Addr().String()) })
	for range 2 {
		c, err := ln.Accept()
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.NoError(t, <-connecting(ctx, ln))
	r := <-dialled
	require.NoError(t, r.err)
	_ = r.value.Close()
}

// TestEncrypted: a notice arrives over TLS, the end of a rank without one is
// noticed, and a peer that does not encrypt, or proves the token of another
// session, is rejected.
func TestEncrypted(t *testing.T) {
	ctx := bounded(t)
	for _, says := range []bool{true, false} {
		ln := listening(ctx, t)
		addr := ln.Addr().String()
		done := started(func() (*Connections, error) { return Connect(ctx, link(0), ln, []string{addr, ""}, true) })
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.Error(t, greet(c, link(1), 0), "in clear")
		_ = c.Close()
		other := listening(ctx, t)
		x, err := Connect(ctx, link(1), other, []string{addr, ""}, true)
		require.NoError(t, err)
		leader := <-done
		require.NoError(t, leader.err)
		notices := make(chan Notice, 1)
		leader.value.Watch(func(n Notice) { notices <- n })
		want := Notice{Peer: 1, Culprit: 1, Reason: GaveUp}
		if says {
			want = Notice{Peer: 1, Culprit: 1, Reason: Desynced, Text: "reasons"}
			x.End(1, Desynced, "reasons")
		} else {
			x.Close()
		}
		require.Equal(t, want, <-notices)
		leader.value.Close()
		leader.value.Wait()
	}
}
