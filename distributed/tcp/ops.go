package tcp

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// The operations plan what each lane moves; start and finish do it.

var _ distributed.Group = (*group)(nil)

// launch starts the planned operation.
func (g *group) launch() {
	if g.troubled() {
		return
	}
	for _, l := range g.lanes {
		if l == nil {
			continue
		}
		if g.op.scatter || l.needsReady || l.needsReady2 || len(l.out) > g.direct || l.inLen > g.direct {
			g.op.bulk = true
		}
	}
	if g.op.bulk {
		g.startBulk()
	} else {
		g.startDirect()
	}
}

// collective gives the operation its number in the order that is the same on
// all ranks.
func (g *group) collective(code opCode) {
	g.seq++
	g.op.code, g.op.seq = code, g.seq
}

// startReduce begins AllSum, AllMax or AllMin.
func (g *group) startReduce(ctx context.Context, name string, code opCode, with reduce.Op, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, name, distributed.CheckReduce(dst, src, dt)); err != nil {
		return err
	}
	g.collective(code)
	g.op.dtype, g.op.reduce, g.op.with = dt, len(src) > 0, with
	elements := len(src) / dt.Size()
	if g.threshold >= 0 && len(src) >= g.threshold && elements >= g.size {
		g.scatterReduce(dst, src, elements, dt.Size())
	} else {
		g.op.src, g.op.target = src, dst
		g.op.inPlace = len(src) > 0 && &dst[0] == &src[0]
		for _, l := range g.lanes {
			if l != nil {
				l.plan(src, nil, len(src), false)
			}
		}
	}
	g.launch()
	return nil
}

// scatterReduce plans the two phases: chunk r of elements is that of rank r.
func (g *group) scatterReduce(dst, src []byte, elements, size int) {
	g.op.scatter = true
	chunk := func(b []byte, r int) []byte {
		return b[r*elements/g.size*size : (r+1)*elements/g.size*size]
	}
	own := chunk(dst, g.rank)
	g.op.src, g.op.target = chunk(src, g.rank), own
	for r, l := range g.lanes {
		if l != nil {
			l.plan(chunk(src, r), nil, len(own), false)
			l.out2, l.in2 = own, chunk(dst, r)
		}
	}
}

func (g *group) allReduce(ctx context.Context, name string, code opCode, with reduce.Op, dst, src []byte, dt distributed.DType) error {
	if err := g.startReduce(ctx, name, code, with, dst, src, dt); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_sum", opAllSum, reduce.Sum, dst, src, dt)
}

func (g *group) AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_max", opAllMax, reduce.Max, dst, src, dt)
}

func (g *group) AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_min", opAllMin, reduce.Min, dst, src, dt)
}

func (g *group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) distributed.Pending {
	if err := g.startReduce(ctx, "all_sum", opAllSum, reduce.Sum, dst, src, dt); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) AllGather(ctx context.Context, dst, src []byte) error {
	if err := g.begin(ctx, "all_gather", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	return g.gather(opAllGather, dst, src)
}

// gather is AllGather, begun.
func (g *group) gather(code opCode, dst, src []byte) error {
	g.collective(code)
	n := len(src)
	own := dst[g.rank*n : (g.rank+1)*n]
	copy(own, src)
	for r, l := range g.lanes {
		if l != nil {
			l.plan(own, dst[r*n:(r+1)*n], n, false)
		}
	}
	g.launch()
	return g.finish()
}

func (g *group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) distributed.Pending {
	if err := g.begin(ctx, "all_gather_v", distributed.CheckGatherV(g.size, dst, sizes)); err != nil {
		return refused{err}
	}
	g.collective(opAllGatherV)
	var own []byte
	at := 0
	for r, n := range sizes {
		if r == g.rank {
			own = dst[at : at+n]
		}
		at += n
	}
	at = 0
	for r, n := range sizes {
		if l := g.lanes[r]; l != nil {
			l.plan(own, dst[at:at+n], n, false)
		}
		at += n
	}
	g.launch()
	return &g.pending
}

func (g *group) SumScatter(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, "sum_scatter", distributed.CheckScatter(g.size, dst, src, dt)); err != nil {
		return err
	}
	g.collective(opSumScatter)
	n := len(dst)
	g.op.dtype, g.op.reduce, g.op.with = dt, n > 0, reduce.Sum
	g.op.src, g.op.target = src[g.rank*n:(g.rank+1)*n], dst
	for r, l := range g.lanes {
		if l != nil {
			l.plan(src[r*n:(r+1)*n], nil, n, false)
		}
	}
	g.launch()
	return g.finish()
}

// message plans an exchange between two ranks, or one side of it.
func (g *group) message(ctx context.Context, name string, args error, dst []byte, from int, src []byte, to int) error {
	if err := g.begin(ctx, name, args); err != nil {
		return err
	}
	g.op.code = opP2P
	for r, l := range g.lanes {
		if l == nil {
			continue
		}
		var out, in []byte
		if r == to {
			out = src
		}
		if r == from {
			in = dst
		}
		l.plan(out, in, len(in), false)
		l.tells, l.told = r == to, r == from
	}
	g.peek()
	g.launch()
	return g.finish()
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

func (g *group) Broadcast(ctx context.Context, buf []byte, root int) error {
	if err := g.begin(ctx, "broadcast", distributed.CheckRoot(g.size, root)); err != nil {
		return err
	}
	g.collective(opBroadcast)
	g.op.root = uint8(root)
	for r, l := range g.lanes {
		switch {
		case l == nil:
		case g.rank == root:
			l.plan(buf, nil, 0, false)
		case r == root:
			l.plan(nil, buf, len(buf), false)
		default:
			l.plan(nil, nil, 0, false)
		}
	}
	g.peek()
	g.launch()
	return g.finish()
}

func (g *group) Barrier(ctx context.Context) error {
	if err := g.begin(ctx, "barrier", nil); err != nil {
		return err
	}
	g.collective(opBarrier)
	for _, l := range g.lanes {
		if l != nil {
			l.plan(nil, nil, 0, true)
		}
	}
	g.launch()
	return g.finish()
}
