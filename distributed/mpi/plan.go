package mpi

import (
	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// Planning: the exchanges of an operation. Start decides who runs them.

// plan returns the exchanges of an operation, in the order in which they run.
func (d *driver) plan(op *distributed.Op) []*exchange {
	x := &exchange{in: make([]int, d.size), header: header{kind: op.Kind.OnWire(), dtype: op.DType, root: uint8(op.Root), epoch: d.link.Epoch, seq: op.Seq}}
	part := func(b []byte, r int) []byte {
		from, to := op.Part(r)
		return b[from:to]
	}
	switch op.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin:
		x.with = reduce.ByKind(op.Kind)
		if size := op.DType.Size(); d.opts.scatters(len(op.Src)) && len(op.Src)/size >= d.size {
			return d.scatterReduce(x, op.Dst, op.Src, len(op.Src)/size, size)
		}
		x.shared, x.own, x.target = op.Src, op.Src, op.Dst
		d.each(func(p int) { x.in[p] = len(op.Src) })
	case distributed.ReduceScatter:
		x.with, x.own, x.target = reduce.Sum, part(op.Src, d.rank), op.Dst
		x.out = make([][]byte, d.size)
		d.each(func(p int) { x.out[p], x.in[p] = part(op.Src, p), len(op.Dst) })
	case distributed.AllGather, distributed.AllGatherV, distributed.Agree:
		x.into = make([][]byte, d.size)
		x.shared = part(op.Dst, d.rank)
		copy(x.shared, op.Src)
		d.each(func(p int) {
			x.into[p] = part(op.Dst, p)
			x.in[p] = len(x.into[p])
		})
	case distributed.Gather:
		x.into, x.out = make([][]byte, d.size), make([][]byte, d.size)
		if d.rank != op.Root {
			x.out[op.Root] = op.Src
			break
		}
		copy(part(op.Dst, d.rank), op.Src)
		d.each(func(p int) {
			x.into[p] = part(op.Dst, p)
			x.in[p] = len(x.into[p])
		})
	case distributed.Broadcast:
		x.into = make([][]byte, d.size)
		if d.rank == op.Root {
			x.shared = op.Dst
		} else {
			x.into[op.Root], x.in[op.Root] = op.Dst, len(op.Dst)
		}
	case distributed.Barrier:
		x.always = true
	default: // messages
		x.into, x.out = make([][]byte, d.size), make([][]byte, d.size)
		if op.From >= 0 {
			x.into[op.From], x.in[op.From] = op.Dst, len(op.Dst)
		}
		if op.To >= 0 {
			x.out[op.To] = op.Src
		}
	}
	return []*exchange{x}
}

// each runs f for all peers.
func (d *driver) each(f func(peer int)) {
	for p := range d.size {
		if p != d.rank {
			f(p)
		}
	}
}

// scatterReduce returns an all-reduce in two phases: every rank reduces its own
// chunk of elements, then all ranks gather the chunks.
func (d *driver) scatterReduce(x *exchange, dst, src []byte, elements, size int) []*exchange {
	chunk := func(b []byte, r int) []byte {
		return b[r*elements/d.size*size : (r+1)*elements/d.size*size]
	}
	x.own, x.target = chunk(src, d.rank), chunk(dst, d.rank)
	x.out = make([][]byte, d.size)
	gather := &exchange{header: x.header, shared: x.target, in: make([]int, d.size), into: make([][]byte, d.size)}
	gather.header.phase = 1
	d.each(func(p int) {
		x.out[p], x.in[p] = chunk(src, p), len(x.target)
		gather.into[p] = chunk(dst, p)
		gather.in[p] = len(gather.into[p])
	})
	return []*exchange{x, gather}
}
