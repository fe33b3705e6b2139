package grouptest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// Group is the part of distributed.Group that the suites use. It is an
// interface because the ranks of some transports are processes that a test
// communicates with.
type Group interface {
	Rank() int
	Size() int
	Kind() string
	AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error
	AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error
	AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error
	AllGather(ctx context.Context, dst, src []byte) error
	AllGatherV(ctx context.Context, dst []byte, sizes []int) error
	ReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt distributed.DType) error
	Gather(ctx context.Context, dst, src []byte, sizes []int, root int) error
	Send(ctx context.Context, src []byte, to int) error
	Recv(ctx context.Context, dst []byte, from int) error
	SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error
	Broadcast(ctx context.Context, buf []byte, root int) error
	Barrier(ctx context.Context) error
	StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) Pending
	StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending
	StartReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt distributed.DType) Pending
	StartGather(ctx context.Context, dst, src []byte, sizes []int, root int) Pending
	Split(ctx context.Context, color, key int) (Group, error)
	Fail(cause error)
	Stats() distributed.Stats
	Close() error
}

// messenger is a Group in this process: the suites run Group.StartMessages on these.
type messenger interface {
	StartMessages(ctx context.Context, dst []byte, from int, src []byte, to int) Pending
}

// Pending is an operation in progress.
type Pending interface{ Wait() error }

// OnAll runs f at once on all ranks, each with its element of groups, and returns their
// errors. It leaves out ranks that have none.
func OnAll[G comparable](groups []G, f func(rank int, g G) error) []error {
	errs := make([]error, len(groups))
	var missing G
	var all sync.WaitGroup
	for r, g := range groups {
		if g != missing {
			all.Go(func() { errs[r] = f(r, g) })
		}
	}
	all.Wait()
	return errs
}

// OpError returns the error of an operation as a distributed.OpError. It ends the test if
// the error is of another type.
func OpError(t testing.TB, err error) *distributed.OpError {
	t.Helper()
	var op *distributed.OpError
	require.ErrorAs(t, err, &op)
	return op
}

// Here turns a function that makes groups in this process into a Connect.
func Here(connect func(t *testing.T, s Setup) []*distributed.Group) Connect {
	return func(t *testing.T, s Setup) []Group {
		groups := connect(t, s)
		out := make([]Group, len(groups))
		for i, g := range groups {
			out[i] = here{g}
		}
		return out
	}
}

// here is a group in this process.
type here struct{ *distributed.Group }

func (h here) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) Pending {
	return h.Group.StartAllSum(ctx, dst, src, dt)
}

func (h here) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending {
	return h.Group.StartAllGatherV(ctx, dst, sizes)
}

func (h here) StartReduceScatter(ctx context.Context, dst, src []byte, sizes []int, dt distributed.DType) Pending {
	return h.Group.StartReduceScatter(ctx, dst, src, sizes, dt)
}

func (h here) StartGather(ctx context.Context, dst, src []byte, sizes []int, root int) Pending {
	return h.Group.StartGather(ctx, dst, src, sizes, root)
}

func (h here) StartMessages(ctx context.Context, dst []byte, from int, src []byte, to int) Pending {
	return h.Group.StartMessages(ctx, dst, from, src, to)
}

func (h here) Split(ctx context.Context, color, key int) (Group, error) {
	child, err := h.Group.Split(ctx, color, key)
	if child == nil {
		return nil, err
	}
	return here{child}, err
}
