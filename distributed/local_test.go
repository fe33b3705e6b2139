package distributed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
)

func TestLocal(t *testing.T) {
	ctx := t.Context()
	g := distributed.Local()
	require.Equal(t, []any{0, 1, "local"}, []any{g.Rank(), g.Size(), g.Kind()})
	src := []byte{1, 2, 3, 4}
	scatter := func(ctx context.Context, dst, src []byte, dt distributed.DType) error {
		return g.ReduceScatter(ctx, dst, src, nil, dt)
	}
	for _, op := range []func(ctx context.Context, dst, src []byte, dt distributed.DType) error{g.AllSum, g.AllMax, g.AllMin, scatter} {
		dst := make([]byte, 4)
		require.NoError(t, op(ctx, dst, src, distributed.Float16))
		require.Equal(t, src, dst)
		require.ErrorIs(t, op(ctx, dst[:3], src[:3], distributed.Float16), distributed.ErrArgument)
		require.ErrorIs(t, op(ctx, dst, src, 99), distributed.ErrArgument)
		require.ErrorIs(t, op(ctx, dst[:2], src, distributed.Float16), distributed.ErrArgument)
		require.ErrorIs(t, op(ctx, src[:2], src[1:3], distributed.Bool), distributed.ErrArgument)
	}
	require.NoError(t, g.AllSum(ctx, src, src, distributed.Int32), "in place")
	dst := make([]byte, 4)
	require.NoError(t, g.AllGather(ctx, dst, src))
	require.Equal(t, src, dst)
	require.NoError(t, g.Broadcast(ctx, dst, 0))
	require.ErrorIs(t, g.Broadcast(ctx, dst, 1), distributed.ErrArgument)
	require.NoError(t, g.Barrier(ctx))
	require.ErrorIs(t, g.Send(ctx, src, 0), distributed.ErrArgument)
	require.ErrorIs(t, g.Recv(ctx, src, 1), distributed.ErrArgument)
	require.ErrorIs(t, g.SendRecv(ctx, dst, 0, src, 0), distributed.ErrArgument)
	require.EqualValues(t, 8, g.Stats().Ops, "operations that ended well")
}

func TestLocalStart(t *testing.T) {
	ctx := t.Context()
	g := distributed.Local()
	src, dst := []byte{5, 6}, make([]byte, 2)
	p := g.StartAllSum(ctx, dst, src, distributed.Float16)
	require.ErrorIs(t, g.Barrier(ctx), distributed.ErrBusy)
	require.ErrorIs(t, g.StartAllGatherV(ctx, dst, []int{2}).Wait(), distributed.ErrBusy)
	require.NoError(t, p.Wait())
	require.Equal(t, src, dst)
	require.NoError(t, g.StartAllGatherV(ctx, dst, []int{2}).Wait())
	require.ErrorIs(t, g.StartAllGatherV(ctx, dst, []int{3}).Wait(), distributed.ErrArgument)
	require.ErrorIs(t, g.StartAllGatherV(ctx, dst, []int{1}).Wait(), distributed.ErrArgument)
	require.ErrorIs(t, g.StartAllGatherV(ctx, dst, []int{1, 1}).Wait(), distributed.ErrArgument)
	require.ErrorIs(t, g.StartAllGatherV(ctx, dst, []int{-1}).Wait(), distributed.ErrArgument)
}

func TestLocalFailure(t *testing.T) {
	g := distributed.Local()
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	require.ErrorContains(t, g.Barrier(over), "given up")
	require.NoError(t, g.Barrier(t.Context()), "an operation that did not begin is no failure")
	cause := &distributed.PeerError{Rank: -1, Cause: "enough"}
	g.Fail(cause)
	g.Fail(errors.New("later"))
	require.ErrorIs(t, g.Barrier(t.Context()), distributed.ErrPeerGone)
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	require.ErrorIs(t, g.StartAllSum(t.Context(), nil, nil, distributed.Bool).Wait(), cause)
	closed := distributed.Local()
	require.NoError(t, closed.Close())
	require.ErrorIs(t, closed.Barrier(t.Context()), distributed.ErrClosed)
}

func TestLocalContract(t *testing.T) {
	grouptest.Local(t, func(*testing.T) *distributed.Group { return distributed.Local() })
}

func TestLocalSplit(t *testing.T) {
	grouptest.Splits(t, grouptest.Here(func(t *testing.T, s grouptest.Setup) []*distributed.Group {
		if s.Size > 1 {
			t.Skip("NOT APPLICABLE: a group of one rank")
		}
		return []*distributed.Group{distributed.Local()}
	}))
	grouptest.Local(t, func(t *testing.T) *distributed.Group {
		g, err := distributed.Local().Split(t.Context(), 5, 0)
		require.NoError(t, err)
		return g
	})
	g := distributed.Local()
	for _, color := range []int{-2, 1 << 31} {
		_, err := g.Split(t.Context(), color, 0)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
	child, err := g.Split(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Equal(t, "local", child.Kind())
	cause := errors.New("enough")
	g.Fail(cause)
	require.ErrorIs(t, child.Barrier(t.Context()), cause)
	require.ErrorContains(t, child.Barrier(t.Context()), "barrier #1 on rank 0 (world rank 0)")
}
