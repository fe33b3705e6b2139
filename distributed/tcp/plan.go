package tcp

import (
	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// Planning: what each lane moves in an operation.

// plan sets the lanes up for the operation.
func (d *driver) plan() {
	op := &d.op
	own := func(b []byte) []byte { return d.part(b, d.rank) }
	switch op.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin:
		op.reduce, op.with = len(op.Src) > 0, reduce.ByKind(op.Kind)
		if d.scatters() {
			d.planScatter()
			return
		}
		op.src, op.target = op.Src, op.Dst
		op.inPlace = len(op.Src) > 0 && &op.Dst[0] == &op.Src[0]
		d.each(func(l *lane) { l.plan(op.Src, nil, len(op.Src), false) })
	case distributed.ReduceScatter:
		op.reduce, op.with = len(op.Dst) > 0, reduce.Sum
		op.src, op.target = own(op.Src), op.Dst
		d.each(func(l *lane) { l.plan(d.part(op.Src, l.peer), nil, len(op.Dst), false) })
	case distributed.AllGather, distributed.Agree, distributed.AllGatherV:
		out := own(op.Dst)
		copy(out, op.Src)
		d.each(func(l *lane) {
			in := d.part(op.Dst, l.peer)
			l.plan(out, in, len(in), false)
		})
	case distributed.Gather:
		root := op.Root
		if d.rank == root {
			copy(own(op.Dst), op.Src)
		}
		d.each(func(l *lane) {
			switch {
			case d.rank == root:
				in := d.part(op.Dst, l.peer)
				l.plan(nil, in, len(in), false)
			case l.peer == root:
				l.plan(op.Src, nil, 0, false)
			default:
				l.plan(nil, nil, 0, false)
			}
		})
		d.peek()
	case distributed.Broadcast:
		d.each(func(l *lane) {
			switch {
			case d.rank == op.Root:
				l.plan(op.Dst, nil, 0, false)
			case l.peer == op.Root:
				l.plan(nil, op.Dst, len(op.Dst), false)
			default:
				l.plan(nil, nil, 0, false)
			}
		})
		d.peek()
	case distributed.Barrier:
		d.each(func(l *lane) { l.plan(nil, nil, 0, true) })
	default: // messages
		d.each(func(l *lane) {
			var out, in []byte
			if l.peer == op.To {
				out = op.Src
			}
			if l.peer == op.From {
				in = op.Dst
			}
			l.plan(out, in, len(in), false)
			l.tells, l.told = l.peer == op.To, l.peer == op.From
		})
		d.peek()
	}
}

// each runs f on the lanes to all peers.
func (d *driver) each(f func(l *lane)) {
	for _, l := range d.lanes {
		if l != nil {
			f(l)
		}
	}
}

// part returns one rank's part of b, which holds the parts of all ranks.
func (d *driver) part(b []byte, rank int) []byte {
	from, to := d.op.Part(rank)
	return b[from:to]
}

// scatters reports whether an all-reduce runs in two phases.
func (d *driver) scatters() bool {
	n := len(d.op.Src)
	return d.threshold >= 0 && n >= d.threshold && n/d.op.DType.Size() >= d.size
}

// planScatter plans the two phases, reduce-scatter and all-gather: chunk r of
// the elements belongs to rank r.
func (d *driver) planScatter() {
	op := &d.op
	op.scatter = true
	size := op.DType.Size()
	elements := len(op.Src) / size
	chunk := func(b []byte, r int) []byte {
		return b[r*elements/d.size*size : (r+1)*elements/d.size*size]
	}
	own := chunk(op.Dst, d.rank)
	op.src, op.target = chunk(op.Src, d.rank), own
	d.each(func(l *lane) {
		l.plan(chunk(op.Src, l.peer), nil, len(own), false)
		l.out2, l.in2 = own, chunk(op.Dst, l.peer)
	})
}
