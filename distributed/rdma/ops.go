package rdma

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/liveness"
)

// largeFrom is the length from which a started operation is given to the worker:
// below it everything is under way when Start returns.
const largeFrom = 128 << 10

// start begins an operation, which begin has taken the group for.
func (g *group) start(k engine.Operation, sizes []int64, src, dst []byte, later bool) error {
	if k.Op != engine.Message {
		g.seq++
	}
	if !g.enter() {
		return nil // drive tells
	}
	t, err := g.eng.Task(k, sizes)
	g.leave()
	if err != nil {
		err = g.wrap(err)
		g.Fail(err) // the other ranks are in the operation
		g.release()
		return err
	}
	g.op.task, g.op.src, g.op.dst = t, src, dst
	if t == nil && len(dst) == len(src) && k.DType != engine.NoDType {
		copy(dst, src)
	}
	g.launch(later)
	return nil
}

func (g *group) startReduce(ctx context.Context, name string, op engine.Op, dst, src []byte, dt distributed.DType, later bool) error {
	if err := g.begin(ctx, name, distributed.CheckReduce(dst, src, dt)); err != nil {
		return err
	}
	return g.start(engine.Operation{Op: op, DType: dt, Bytes: int64(len(src)), To: -1, From: -1}, nil, src, dst, later)
}

func (g *group) allReduce(ctx context.Context, name string, op engine.Op, dst, src []byte, dt distributed.DType) error {
	if err := g.startReduce(ctx, name, op, dst, src, dt, false); err != nil {
		return err
	}
	return g.finish()
}

// AllSum is described at distributed.Group, as are the others.
func (g *group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_sum", engine.AllSum, dst, src, dt)
}

func (g *group) AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_max", engine.AllMax, dst, src, dt)
}

func (g *group) AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_min", engine.AllMin, dst, src, dt)
}

func (g *group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) distributed.Pending {
	if err := g.startReduce(ctx, "all_sum", engine.AllSum, dst, src, dt, true); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) AllGather(ctx context.Context, dst, src []byte) error {
	if err := g.begin(ctx, "all_gather", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	k := engine.Operation{Op: engine.AllGather, DType: engine.NoDType, Bytes: int64(len(src)), To: -1, From: -1}
	if err := g.start(k, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) distributed.Pending {
	if err := g.begin(ctx, "all_gather_v", distributed.CheckGatherV(g.size, dst, sizes)); err != nil {
		return refused{err}
	}
	long := make([]int64, len(sizes))
	h := fnv.New64a()
	for r, n := range sizes {
		long[r] = int64(n)
		fmt.Fprint(h, n, " ")
	}
	k := engine.Operation{Op: engine.AllGatherV, DType: engine.NoDType, Bytes: int64(len(dst)), Extra: h.Sum64(), To: -1, From: -1}
	if err := g.start(k, long, nil, dst, true); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) SumScatter(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, "sum_scatter", distributed.CheckScatter(g.size, dst, src, dt)); err != nil {
		return err
	}
	if err := g.start(engine.Operation{Op: engine.SumScatter, DType: dt, Bytes: int64(len(dst)), To: -1, From: -1}, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) Broadcast(ctx context.Context, buf []byte, root int) error {
	if err := g.begin(ctx, "broadcast", distributed.CheckRoot(g.size, root)); err != nil {
		return err
	}
	k := engine.Operation{Op: engine.Broadcast, DType: engine.NoDType, Bytes: int64(len(buf)), Root: root, Extra: uint64(root) + 1, To: -1, From: -1}
	if err := g.start(k, nil, nil, buf, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) Barrier(ctx context.Context) error {
	if err := g.begin(ctx, "barrier", nil); err != nil {
		return err
	}
	if err := g.start(engine.Operation{Op: engine.Barrier, DType: engine.NoDType, To: -1, From: -1}, nil, nil, nil, false); err != nil {
		return err
	}
	return g.finish()
}

// message moves bytes between this rank and others: over rails where there are
// some, else over the side channel, which both ends know alike.
func (g *group) message(ctx context.Context, name string, args error, dst []byte, from int, src []byte, to int) error {
	if err := g.begin(ctx, name, args); err != nil {
		return err
	}
	k := engine.Operation{Op: engine.Message, DType: engine.NoDType, Bytes: int64(len(src)), Received: int64(len(dst)), To: to, From: from}
	sideTo, sideFrom := -1, -1
	if to >= 0 && !g.eng.Plan().Topology.Joined(g.rank, to) {
		sideTo, k.To, k.Bytes = to, -1, 0
	}
	if from >= 0 && !g.eng.Plan().Topology.Joined(g.rank, from) {
		sideFrom, k.From, k.Received = from, -1, 0
	}
	if sideTo >= 0 || sideFrom >= 0 {
		g.overSide(0, max(sideTo, sideFrom), func(ctx context.Context) error {
			switch {
			case sideTo >= 0 && sideFrom >= 0:
				return g.side.SendRecv(ctx, dst, sideFrom, src, sideTo)
			case sideTo >= 0:
				return g.side.Send(ctx, src, sideTo)
			}
			return g.side.Recv(ctx, dst, sideFrom)
		})
	}
	g.op.to = to
	if k.To < 0 && k.From < 0 {
		g.op.done = true
		return g.finish()
	}
	if g.op.peer = k.To; k.To < 0 {
		g.op.peer = k.From
	}
	if err := g.start(k, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

// overSide begins the part of an operation that goes over the side channel. It
// may take slack longer than the rest, which finds out more about who is late. An
// error without a culprit is one of the peer, -1 for none.
func (g *group) overSide(slack time.Duration, peer int, f func(ctx context.Context) error) {
	done := make(chan error, 1)
	g.op.side = done
	deadline := g.op.deadline.Add(slack)
	g.running.Go(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), deadline,
			fmt.Errorf("%w: not delivered within %v", distributed.ErrTimeout, g.link.OpTimeout))
		defer cancel()
		err := f(ctx)
		if err != nil {
			g.sideTrouble(peer, err)
		}
		done <- err
	})
}

// sideTrouble suspects the peer of an error of the side channel. If it was
// closed the other side has given up, and the liveness connection is about to say why.
func (g *group) sideTrouble(peer int, err error) {
	var op *distributed.OpError
	if errors.As(err, &op) {
		if err = op.Err; op.Peer >= 0 {
			peer = op.Peer
		}
	}
	if errors.Is(err, distributed.ErrPeerGone) {
		timer := time.NewTimer(liveness.NoticeTimeout)
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	g.suspect(peer, err)
}

func (g *group) Send(ctx context.Context, src []byte, to int) error {
	return g.message(ctx, "send", distributed.CheckPeer(g.size, g.rank, to), nil, -1, src, to)
}

func (g *group) Recv(ctx context.Context, dst []byte, from int) error {
	return g.message(ctx, "recv", distributed.CheckPeer(g.size, g.rank, from), dst, from, nil, -1)
}

func (g *group) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return g.message(ctx, "send_recv", distributed.CheckSendRecv(g.size, g.rank, dst, from, src, to), dst, from, src, to)
}
