package mpi

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// The operations plan exchanges; see launch for who runs them.

// plan begins an exchange of the group. Collective ones have a number in the
// order that is the same on all ranks.
func (g *group) plan(code opCode, dt distributed.DType) *exchange {
	x := &exchange{in: make([]int, g.size), header: header{code: code, dtype: dt, epoch: g.link.Epoch}}
	if code != opP2P {
		g.seq++
		x.header.seq = g.seq
	}
	return x
}

// reduction is the rule of an operation.
func reduction(code opCode) reduce.Op {
	switch code {
	case opAllMax:
		return reduce.Max
	case opAllMin:
		return reduce.Min
	}
	return reduce.Sum
}

// startReduce begins AllSum, AllMax or AllMin.
func (g *group) startReduce(ctx context.Context, code opCode, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, code.String(), distributed.CheckReduce(dst, src, dt)); err != nil {
		return err
	}
	x := g.plan(code, dt)
	x.with = reduction(code)
	elements := len(src) / dt.Size()
	if g.opts.scatters(len(src)) && elements >= g.size {
		g.scatterReduce(x, dst, src, elements, dt.Size())
		return nil
	}
	x.shared, x.own, x.target = src, src, dst
	for p := range x.in {
		if p != g.rank {
			x.in[p] = len(src)
		}
	}
	g.launch(x)
	return nil
}

// scatterReduce runs the two phases: every rank reduces its chunk of elements,
// and all gather the chunks.
func (g *group) scatterReduce(x *exchange, dst, src []byte, elements, size int) {
	chunk := func(b []byte, r int) []byte {
		return b[r*elements/g.size*size : (r+1)*elements/g.size*size]
	}
	x.own, x.target = chunk(src, g.rank), chunk(dst, g.rank)
	x.out = make([][]byte, g.size)
	gather := &exchange{header: x.header, shared: x.target, in: make([]int, g.size), into: make([][]byte, g.size)}
	gather.header.phase = 1
	for p := range g.size {
		if p == g.rank {
			continue
		}
		x.out[p], x.in[p] = chunk(src, p), len(x.target)
		gather.into[p] = chunk(dst, p)
		gather.in[p] = len(gather.into[p])
	}
	g.launch(x, gather)
}

func (g *group) allReduce(ctx context.Context, code opCode, dst, src []byte, dt distributed.DType) error {
	if err := g.startReduce(ctx, code, dst, src, dt); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, opAllSum, dst, src, dt)
}

func (g *group) AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, opAllMax, dst, src, dt)
}

func (g *group) AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, opAllMin, dst, src, dt)
}

func (g *group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) distributed.Pending {
	if err := g.startReduce(ctx, opAllSum, dst, src, dt); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) AllGather(ctx context.Context, dst, src []byte) error {
	if err := g.begin(ctx, opAllGather.String(), distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	return g.gather(opAllGather, dst, src)
}

// gather is AllGather, begun.
func (g *group) gather(code opCode, dst, src []byte) error {
	x := g.plan(code, noDType)
	x.into = make([][]byte, g.size)
	n := len(src)
	for p := range g.size {
		x.into[p] = dst[p*n : (p+1)*n]
		if p != g.rank {
			x.in[p] = n
		}
	}
	copy(x.into[g.rank], src)
	x.shared = x.into[g.rank]
	g.launch(x)
	return g.finish()
}

func (g *group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) distributed.Pending {
	if err := g.begin(ctx, opAllGatherV.String(), distributed.CheckGatherV(g.size, dst, sizes)); err != nil {
		return refused{err}
	}
	x := g.plan(opAllGatherV, noDType)
	x.into = make([][]byte, g.size)
	at := 0
	for p, n := range sizes {
		x.into[p] = dst[at : at+n]
		if p != g.rank {
			x.in[p] = n
		}
		at += n
	}
	x.shared = x.into[g.rank]
	g.launch(x)
	return &g.pending
}

func (g *group) SumScatter(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, opSumScatter.String(), distributed.CheckScatter(g.size, dst, src, dt)); err != nil {
		return err
	}
	x := g.plan(opSumScatter, dt)
	x.with = reduce.Sum
	x.out = make([][]byte, g.size)
	n := len(dst)
	x.own, x.target = src[g.rank*n:(g.rank+1)*n], dst
	for p := range g.size {
		if p != g.rank {
			x.out[p], x.in[p] = src[p*n:(p+1)*n], n
		}
	}
	g.launch(x)
	return g.finish()
}

// message is an exchange between two ranks, or one side of it; a rank of -1 is
// none.
func (g *group) message(ctx context.Context, name string, args error, dst []byte, from int, src []byte, to int) error {
	if err := g.begin(ctx, name, args); err != nil {
		return err
	}
	x := g.plan(opP2P, noDType)
	x.into, x.out = make([][]byte, g.size), make([][]byte, g.size)
	if from >= 0 {
		x.into[from], x.in[from] = dst, len(dst)
	}
	if to >= 0 {
		x.out[to] = src
	}
	g.launch(x)
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
	if err := g.begin(ctx, opBroadcast.String(), distributed.CheckRoot(g.size, root)); err != nil {
		return err
	}
	x := g.plan(opBroadcast, noDType)
	x.header.root = uint8(root)
	x.into = make([][]byte, g.size)
	if g.rank == root {
		x.shared = buf
	} else {
		x.into[root], x.in[root] = buf, len(buf)
	}
	g.launch(x)
	return g.finish()
}

func (g *group) Barrier(ctx context.Context) error {
	if err := g.begin(ctx, opBarrier.String(), nil); err != nil {
		return err
	}
	x := g.plan(opBarrier, noDType)
	x.always = true
	g.launch(x)
	return g.finish()
}
