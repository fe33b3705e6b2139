package plan

// The order and number of messages on a wire, and where chunks lie, as the engine has
// them in C (engine/wire.h), for the simulator and the proofs.

// ChunkLen returns how many elements chunk c has.
func (o *LocalOp) ChunkLen(c int64) int64 { return min(o.ChunkElems, o.Elems-c*o.ChunkElems) }

// At returns the offset in bytes of chunk c.
func (r Ref) At(c int64) int64 {
	if r.Window > 0 {
		c %= int64(r.Window)
	}
	return r.Off + c*r.Stride
}

// Cursor walks over the messages of a wire in their order.
type Cursor struct {
	l     *Local
	ops   []int
	round int64
	next  int
	left  int64
}

// Walk begins at the first message of the wire, which is one of l.Sends or
// l.Recvs.
func (l *Local) Walk(w Wire) Cursor { return Cursor{l: l, ops: w.Ops, left: w.Messages} }

// Next returns the op and the chunk of the next message, false after the last.
func (c *Cursor) Next() (op int, chunk int64, ok bool) {
	for c.left > 0 {
		if c.next == len(c.ops) {
			c.next = 0
			c.round++
		}
		op = c.ops[c.next]
		c.next++
		o := &c.l.Ops[op]
		if chunk = c.round - int64(o.Lag); chunk >= 0 && chunk < o.Chunks {
			c.left--
			return op, chunk, true
		}
	}
	return 0, 0, false
}

// prepost returns how many receives are posted, or sends started, at the
// beginning on a wire that carries count messages in this operation.
func prepost(count int64, slots int) int { return int(min(count, int64(slots))) }

// postsNext reports whether a receive is posted after message i (from 0) was
// consumed. With prepost it replaces every comparison of offsets, so that never
// more receives are posted than messages arrive.
func postsNext(i, count int64, slots int) bool { return i+int64(slots) < count }

// wires counts the messages of each wire of a rail: [from][to].
func (p *Program) wires() [][]int64 {
	n := make([][]int64, p.ranks)
	for r := range n {
		n[r] = make([]int64, p.ranks)
	}
	for i := range p.Ops {
		if o := &p.Ops[i]; o.Kind == Move {
			n[o.From][o.To] += p.Chunks(i)
		}
	}
	return n
}
