package liveness

import (
	"bytes"
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// TestAdmits: a stranger who says nothing, one with another token, and a
// rank that connects first and proves itself last keep nobody out.
func TestAdmits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	link := func(r int) *distributed.Link {
		return &distributed.Link{Rank: r, Size: 3, GroupID: "liveness", Epoch: 4, Token: bytes.Repeat([]byte{3}, 32)}
	}
	ln, err := Listen(ctx, "127.0.0.1")
	require.NoError(t, err)
	type result struct {
		w   *Connections
		err error
	}
	done := make(chan result, 1)
	go func() {
		w, err := Connect(ctx, link(0), ln, make([]string, 3))
		done <- result{w, err}
	}()
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
	require.NotNil(t, r.w.conns[1])
	require.NotNil(t, r.w.conns[2])
	_, err = silent.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a stranger's connection is closed")
	r.w.Close()

	// A rank that does not connect is named.
	ln, err = Listen(ctx, "127.0.0.1")
	require.NoError(t, err)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err = Connect(short, link(1), ln, []string{ln.Addr().String(), "", ""})
	require.ErrorContains(t, err, "liveness connection to rank 0")
	ln, err = Listen(ctx, "127.0.0.1")
	require.NoError(t, err)
	_, err = Connect(short, link(0), ln, make([]string, 3))
	require.ErrorContains(t, err, "liveness connection to rank 1")
}
