package grouptest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// failures checks that every wait ends and that the first cause is kept.
func failures(t *testing.T, connect Connect) {
	groups := func(t *testing.T, n int) []Group {
		return connect(t, Setup{Size: n, OpTimeout: time.Minute})
	}
	ctx := context.Background()
	verdict := &distributed.PeerError{Rank: 1, Addr: "here", Cause: "connection closed"}

	// The ways in which a rank can wait for rank 1, which does not take
	// part, in small and large operations.
	waits := []struct {
		name string
		wait func(ctx context.Context, g Group) error
	}{
		{"barrier", func(ctx context.Context, g Group) error { return g.Barrier(ctx) }},
		{"all_sum", func(ctx context.Context, g Group) error {
			b := make([]byte, 64)
			return g.StartAllSum(ctx, b, b, distributed.Float16).Wait()
		}},
		{"large all_sum", func(ctx context.Context, g Group) error {
			b := make([]byte, 4<<20)
			return g.StartAllSum(ctx, b, b, distributed.Float16).Wait()
		}},
		{"recv", func(ctx context.Context, g Group) error { return g.Recv(ctx, make([]byte, 8), 1) }},
		{"large send", func(ctx context.Context, g Group) error { return g.Send(ctx, make([]byte, 32<<20), 1) }},
	}
	// later requires a failed group to keep returning its cause.
	later := func(t *testing.T, g Group, cause error) {
		for range 2 {
			require.ErrorIs(t, g.Barrier(ctx), cause)
			b := make([]byte, 8)
			require.ErrorIs(t, g.StartAllSum(ctx, b, b, distributed.Float16).Wait(), cause)
			require.ErrorIs(t, g.Send(ctx, b, 1), cause)
		}
		require.NoError(t, g.Close())
		require.ErrorIs(t, g.Barrier(ctx), cause, "Close does not hide the cause")
	}
	run := func(t *testing.T, f func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- f() }()
		return done
	}
	for _, w := range waits {
		t.Run("fail while waiting: "+w.name, func(t *testing.T) {
			g := groups(t, 3)[0]
			done := run(t, func() error { return w.wait(ctx, g) })
			g.Fail(verdict)
			g.Fail(errors.New("a later cause"))
			err := <-done
			require.ErrorIs(t, err, distributed.ErrPeerGone)
			require.Equal(t, 1, OpError(t, err).Peer)
			var peer *distributed.PeerError
			require.ErrorAs(t, err, &peer)
			require.Equal(t, verdict, peer)
			later(t, g, verdict)
		})
		t.Run("close while waiting: "+w.name, func(t *testing.T) {
			g := groups(t, 2)[0]
			done := run(t, func() error { return w.wait(ctx, g) })
			require.NoError(t, g.Close())
			require.ErrorIs(t, <-done, distributed.ErrClosed)
			require.NoError(t, g.Close())
			require.ErrorIs(t, g.Barrier(ctx), distributed.ErrClosed)
		})
		t.Run("peer dies: "+w.name, func(t *testing.T) {
			all := groups(t, 2)
			done := run(t, func() error { return w.wait(ctx, all[0]) })
			require.NoError(t, all[1].Close())
			err := <-done
			require.ErrorIs(t, err, distributed.ErrPeerGone)
			op := OpError(t, err)
			require.Equal(t, 1, op.Peer)
			require.NotEmpty(t, op.Addr)
			later(t, all[0], err)
		})
		t.Run("peer died while idle: "+w.name, func(t *testing.T) {
			all := groups(t, 2)
			each(t, all, func(g Group) error { return g.Barrier(ctx) })
			require.NoError(t, all[1].Close())
			require.ErrorIs(t, w.wait(ctx, all[0]), distributed.ErrPeerGone)
		})
		t.Run("deadline: "+w.name, func(t *testing.T) {
			all := connect(t, Setup{Size: 3, OpTimeout: 50 * time.Millisecond})
			err := w.wait(ctx, all[0])
			require.ErrorIs(t, err, distributed.ErrTimeout)
			require.ErrorContains(t, err, "rank 1")
			require.Equal(t, 1, OpError(t, err).Peer)
			later(t, all[0], err)
		})
		t.Run("context ends: "+w.name, func(t *testing.T) {
			g := groups(t, 2)[0]
			over, cancel := context.WithCancelCause(ctx)
			done := run(t, func() error { return w.wait(over, g) })
			cause := errors.New("no longer wanted")
			cancel(cause)
			require.ErrorIs(t, <-done, cause)
		})
	}
	t.Run("a context that ends between operations", func(t *testing.T) {
		all := groups(t, 2)
		over, cancel := context.WithCancel(ctx)
		each(t, all, func(g Group) error { return g.Barrier(over) })
		cancel()
		each(t, all, func(g Group) error { return g.Barrier(ctx) })
	})
	desyncs(t, groups)
}

// desyncs checks that two ranks in different operations both get an error.
func desyncs(t *testing.T, groups func(t *testing.T, n int) []Group) {
	ctx := context.Background()
	b := func(n int) []byte { return make([]byte, n) }
	for _, c := range []struct {
		name string
		do   [2]func(g Group) error
		text [2]string // what one of the two errors must contain
	}{
		{"operation", [2]func(g Group) error{
			func(g Group) error { return g.AllSum(ctx, b(8), b(8), distributed.Float16) },
			func(g Group) error { return g.Barrier(ctx) },
		}, [2]string{"all_sum", "barrier"}},
		{"type", [2]func(g Group) error{
			func(g Group) error { return g.AllSum(ctx, b(8), b(8), distributed.Float16) },
			func(g Group) error { return g.AllSum(ctx, b(8), b(8), distributed.BFloat16) },
		}, [2]string{"float16", "bfloat16"}},
		{"length", [2]func(g Group) error{
			func(g Group) error { return g.AllSum(ctx, b(8), b(8), distributed.Float16) },
			func(g Group) error { return g.AllSum(ctx, b(6), b(6), distributed.Float16) },
		}, [2]string{"8 bytes", "6 bytes"}},
		{"large length", [2]func(g Group) error{
			func(g Group) error { return g.AllSum(ctx, b(4<<20), b(4<<20), distributed.Float16) },
			func(g Group) error { return g.AllSum(ctx, b(4), b(4), distributed.Float16) },
		}, [2]string{"all_sum", "all_sum"}},
		{"message and collective", [2]func(g Group) error{
			func(g Group) error { return g.SendRecv(ctx, b(8), 1, b(8), 1) },
			func(g Group) error { return g.AllGather(ctx, b(16), b(8)) },
		}, [2]string{"send", "all_gather"}},
	} {
		t.Run("desync: "+c.name, func(t *testing.T) {
			all := groups(t, 2)
			errs := OnAll(all, func(_ int, g Group) error {
				defer g.Fail(fmt.Errorf("rank %d gave up", g.Rank()))
				return c.do[g.Rank()](g)
			})
			// One rank may first see the other close its connection.
			told := false
			for r, err := range errs {
				require.Error(t, err, "rank %d", r)
				require.Equal(t, 1-r, OpError(t, err).Peer)
				if errors.Is(err, distributed.ErrDesync) {
					told = true
					require.ErrorContains(t, err, c.text[0])
					require.ErrorContains(t, err, c.text[1])
				}
			}
			require.True(t, told, "%v", errs)
		})
	}
}
