package grouptest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// splitFailures checks which groups fail together and what the errors say.
func splitFailures(t *testing.T, connect Connect) {
	ctx := context.Background()
	// Ranks 3 and 1 of the parent become ranks 0 and 1 of one child, ranks
	// 2 and 0 those of the other.
	pairs := func(t *testing.T, timeout time.Duration) (parents, children []Group) {
		parents = connect(t, Setup{Size: 4, OpTimeout: timeout})
		return parents, splitAll(t, parents, []int{0, 1, 0, 1}, []int{3, 2, 1, 0})
	}
	verdict := &distributed.PeerError{Rank: 3, Addr: "there", Cause: "no heartbeat"}

	t.Run("a child fails with its parent", func(t *testing.T) {
		parents, children := pairs(t, time.Minute)
		grand := splitAll(t, children, []int{0, 0, 0, 0}, []int{0, 0, 0, 0})
		single := splitAll(t, grand, []int{0, 1, 2, 3}, []int{0, 0, 0, 0})
		done := make(chan error, 1)
		go func() { done <- grand[1].Barrier(ctx) }() // rank 3 does not take part
		parents[1].Fail(verdict)
		err := <-done
		require.ErrorIs(t, err, verdict)
		op := OpError(t, err)
		require.Equal(t, []int{1, 0, 3}, []int{op.Rank, op.Peer, op.WorldPeer()})
		require.ErrorContains(t, err, "on rank 1 (world rank 1): rank 0 (world rank 3)")
		for _, g := range []Group{children[1], grand[1], single[1]} {
			require.ErrorIs(t, g.Barrier(ctx), verdict)
			_, err := g.Split(ctx, 0, 0)
			require.ErrorIs(t, err, verdict)
		}
		_, err = parents[1].Split(ctx, 0, 0)
		require.ErrorIs(t, err, verdict)
	})
	t.Run("the parent outlives a child", func(t *testing.T) {
		parents, children := pairs(t, time.Minute)
		cause := errors.New("no longer wanted")
		for i, c := range children {
			if i%2 == 0 {
				c.Fail(cause)
				require.ErrorIs(t, c.Barrier(ctx), cause)
			}
			require.NoError(t, c.Close())
			require.NoError(t, c.Close())
			require.Error(t, c.Barrier(ctx))
		}
		exercise(t, parents, 1)
		again := splitAll(t, parents, []int{0, 1, 0, 1}, []int{3, 2, 1, 0})
		exercise(t, again, 2)
	})
	t.Run("a parent closes its children", func(t *testing.T) {
		parents, children := pairs(t, time.Minute)
		grand := splitAll(t, children, []int{0, 0, 0, 0}, []int{0, 0, 0, 0})
		done := make(chan error, 1)
		go func() { done <- grand[2].Barrier(ctx) }() // rank 0 does not take part
		require.NoError(t, parents[2].Close())
		require.ErrorIs(t, <-done, distributed.ErrClosed)
		for _, g := range []Group{children[2], grand[2]} {
			require.ErrorIs(t, g.Barrier(ctx), distributed.ErrClosed)
			require.NoError(t, g.Close())
		}
		_, err := parents[2].Split(ctx, 0, 0)
		require.ErrorIs(t, err, distributed.ErrClosed)
	})
	t.Run("a member dies", func(t *testing.T) {
		_, children := pairs(t, time.Minute)
		require.NoError(t, children[3].Close())
		err := children[1].Barrier(ctx)
		require.ErrorIs(t, err, distributed.ErrPeerGone)
		op := OpError(t, err)
		require.Equal(t, []int{1, 0, 3}, []int{op.Rank, op.Peer, op.WorldPeer()})
		require.NotEmpty(t, op.Addr)
		require.ErrorContains(t, err, "rank 0 (world rank 3)")
		exercise(t, []Group{children[0], nil, children[2]}, 1) // the other child is not affected
	})
	t.Run("a member is late", func(t *testing.T) {
		_, children := pairs(t, time.Second)
		err := children[1].Barrier(ctx)
		require.ErrorIs(t, err, distributed.ErrTimeout)
		require.ErrorContains(t, err, "rank 0 (world rank 3)")
	})
	t.Run("invalid color", func(t *testing.T) {
		parents := connect(t, Setup{Size: 3, OpTimeout: time.Minute})
		for i, err := range OnAll(parents, func(i int, g Group) error {
			c, err := g.Split(ctx, []int{0, -2, 0}[i], 0)
			if c != nil {
				return errors.New("the split made a child")
			}
			return err
		}) {
			require.ErrorIs(t, err, distributed.ErrArgument, "rank %d", i)
			require.ErrorContains(t, err, "rank 1 has color -2")
			require.Equal(t, i, OpError(t, err).Rank)
		}
		exercise(t, splitAll(t, parents, []int{0, 0, 0}, []int{0, 0, 0}), 1)
		exercise(t, parents, 2)
	})
	t.Run("one at a time", func(t *testing.T) {
		parents := connect(t, Setup{Size: 2, OpTimeout: time.Minute})
		b := make([][]byte, 2)
		started := make([]Pending, 2)
		for i, g := range parents {
			b[i] = make([]byte, 8)
			started[i] = g.StartAllSum(ctx, b[i], b[i], distributed.Float16)
			_, err := g.Split(ctx, 0, 0)
			require.ErrorIs(t, err, distributed.ErrBusy)
		}
		for i, err := range OnAll(parents, func(i int, _ Group) error { return started[i].Wait() }) {
			require.NoError(t, err, "rank %d", i)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err := parents[0].Split(over, 0, 0)
		require.ErrorIs(t, err, context.Canceled)
		exercise(t, splitAll(t, parents, []int{0, 0}, []int{0, 0}), 1)
		before := parents[0].Stats()
		children := splitAll(t, parents, []int{0, 0}, []int{0, 0})
		require.EqualValues(t, 1, parents[0].Stats().Sub(before).Ops)
		require.Zero(t, children[0].Stats().Ops)
	})
	t.Run("a split without one rank", func(t *testing.T) {
		parents := connect(t, Setup{Size: 3, OpTimeout: 300 * time.Millisecond})
		_, err := parents[0].Split(ctx, 0, 0)
		require.ErrorIs(t, err, distributed.ErrTimeout)
		require.ErrorContains(t, err, "split")
		require.ErrorIs(t, parents[0].Barrier(ctx), distributed.ErrTimeout)
	})
	t.Run("a split and something else", func(t *testing.T) {
		parents := connect(t, Setup{Size: 2, OpTimeout: time.Minute})
		told := false
		for i, err := range OnAll(parents, func(i int, g Group) (err error) {
			defer g.Fail(errors.New("gave up"))
			if i == 0 {
				_, err = g.Split(ctx, 0, 0)
				return err
			}
			return g.AllGather(ctx, make([]byte, 96), make([]byte, 48))
		}) {
			require.Error(t, err, "rank %d", i)
			told = told || errors.Is(err, distributed.ErrDesync)
		}
		require.True(t, told)
	})
}
