package distributed

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

// Local is a group of one rank: reductions, gathers and scatters copy, Barrier
// returns at once, Send and Recv fail with ErrArgument. It checks arguments,
// order and failure like every other group.
func Local() Group { return &local{} }

type local struct {
	busy  atomic.Bool
	ops   atomic.Uint64
	cause atomic.Pointer[error] // of the failure, nil before
	open  localPending

	split      Splitter
	closedHook func() // of a child, nil else
}

// localPending is the one operation that may be started.
type localPending struct {
	g   *local
	err error
}

func (p *localPending) Wait() error {
	if p.g == nil {
		return p.err
	}
	p.g.busy.Store(false)
	return p.err
}

func (l *local) Rank() int    { return 0 }
func (l *local) Size() int    { return 1 }
func (l *local) Kind() string { return "local" }

func (l *local) wrap(op string, err error) error {
	return &OpError{Op: op, Seq: l.ops.Load() + 1, Peer: -1, World: l.split.World, Err: err}
}

// run does an operation: check looks at the arguments, work copies. busy is
// left set when it returns nil.
func (l *local) run(ctx context.Context, op string, check error, dst, src []byte) error {
	if !l.busy.CompareAndSwap(false, true) {
		return l.wrap(op, ErrBusy)
	}
	err := check
	if cause := l.cause.Load(); cause != nil {
		err = *cause
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = l.wrap(op, err)
		l.busy.Store(false)
		return err
	}
	copy(dst, src)
	l.ops.Add(1)
	return nil
}

func (l *local) do(ctx context.Context, op string, check error, dst, src []byte) error {
	if err := l.run(ctx, op, check, dst, src); err != nil {
		return err
	}
	l.busy.Store(false)
	return nil
}

func (l *local) start(ctx context.Context, op string, check error, dst, src []byte) Pending {
	if err := l.run(ctx, op, check, dst, src); err != nil {
		return &localPending{err: err}
	}
	l.open = localPending{g: l}
	return &l.open
}

func (l *local) AllSum(ctx context.Context, dst, src []byte, dt DType) error {
	return l.do(ctx, "all_sum", CheckReduce(dst, src, dt), dst, src)
}

func (l *local) AllMax(ctx context.Context, dst, src []byte, dt DType) error {
	return l.do(ctx, "all_max", CheckReduce(dst, src, dt), dst, src)
}

func (l *local) AllMin(ctx context.Context, dst, src []byte, dt DType) error {
	return l.do(ctx, "all_min", CheckReduce(dst, src, dt), dst, src)
}

func (l *local) AllGather(ctx context.Context, dst, src []byte) error {
	return l.do(ctx, "all_gather", CheckGather(1, 0, dst, src), dst, src)
}

func (l *local) SumScatter(ctx context.Context, dst, src []byte, dt DType) error {
	return l.do(ctx, "sum_scatter", CheckScatter(1, dst, src, dt), dst, src)
}

func (l *local) Send(ctx context.Context, _ []byte, to int) error {
	return l.do(ctx, "send", CheckPeer(1, 0, to), nil, nil)
}

func (l *local) Recv(ctx context.Context, _ []byte, from int) error {
	return l.do(ctx, "recv", CheckPeer(1, 0, from), nil, nil)
}

func (l *local) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return l.do(ctx, "send_recv", CheckSendRecv(1, 0, dst, from, src, to), nil, nil)
}

func (l *local) Broadcast(ctx context.Context, _ []byte, root int) error {
	return l.do(ctx, "broadcast", CheckRoot(1, root), nil, nil)
}

func (l *local) Barrier(ctx context.Context) error { return l.do(ctx, "barrier", nil, nil, nil) }

func (l *local) StartAllSum(ctx context.Context, dst, src []byte, dt DType) Pending {
	return l.start(ctx, "all_sum", CheckReduce(dst, src, dt), dst, src)
}

func (l *local) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending {
	return l.start(ctx, "all_gather_v", CheckGatherV(1, dst, sizes), nil, nil)
}

// Split is described at Group: every child is another group of this rank.
func (l *local) Split(ctx context.Context, color, key int) (Group, error) {
	var wrong error
	if color < Undefined || color > math.MaxInt32 {
		wrong = fmt.Errorf("%w: color %d; 0 to %d, or %d for none", ErrArgument, color, math.MaxInt32, Undefined)
	}
	if err := l.run(ctx, "split", wrong, nil, nil); err != nil {
		return nil, err
	}
	defer l.busy.Store(false)
	number := l.ops.Load()
	c := l.split.child(0, number, []proposal{{l.split.ID, number, color, key, 0}}, [][]byte{nil})
	g, err := l.split.form(ctx, c, nil)
	l.split.adopt(g)
	return g, err
}

// Fail is described at Group.
func (l *local) Fail(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	if l.cause.CompareAndSwap(nil, &cause) {
		l.split.Fail(cause)
	}
}

func (l *local) Stats() Stats { return Stats{Ops: l.ops.Load()} }

// Close is described at Group.
func (l *local) Close() error {
	l.Fail(ErrClosed)
	err := l.split.Close()
	if l.closedHook != nil {
		l.closedHook()
	}
	return err
}
