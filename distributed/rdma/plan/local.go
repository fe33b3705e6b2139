package plan

// LocalKind is what a LocalOp does; see the package comment.
type LocalKind uint8

// The kinds of local ops.
const (
	LocalSend LocalKind = iota
	LocalRecv
	LocalReduce
	LocalCopy
)

// LocalOp is one op of one rank. Deps and Inputs name ops by their index in
// Local.Ops.
type LocalOp struct {
	Kind   LocalKind
	Peer   int // of a Send and a Recv
	Read   Ref // Send, Copy
	Write  Ref // Recv, Reduce, Copy
	Held   bool
	Wide   bool // float32 partial sums on the wire, or written by a Reduce
	Inputs []Input
	Elems  int64
	// ChunkElems is the number of elements of a full chunk, Chunks the number of
	// chunks.
	ChunkElems int64
	Chunks     int64
	Lag        int
	After      []Dep
}

// Wire is one direction between the rank and a peer on the rail.
type Wire struct {
	Peer     int
	Messages int64 // in total
	Ops      []int // indices in Local.Ops, in the order of the program
}

// Local is what one rank does on one rail.
type Local struct {
	Rank    int
	Rail    int
	Elem    int   // bytes of an element
	Scratch int64 // bytes of scratch memory
	Ops     []LocalOp
	Sends   []Wire // in the order of their first ops, only those with messages
	Recvs   []Wire
}

// Local returns the part of a rank, without ops that have no chunks.
func (p *Program) Local(rank int) *Local {
	l := &Local{Rank: rank, Rail: p.Rail, Elem: p.Elem, Scratch: p.Scratch}
	place := make([]int, len(p.Ops))
	for i := range p.Ops {
		place[i] = -1
		o := &p.Ops[i]
		chunks := p.Chunks(i)
		if chunks == 0 || o.From != rank && o.To != rank {
			continue
		}
		place[i] = len(l.Ops)
		x := LocalOp{Elems: o.Elems, ChunkElems: p.ChunkElems, Chunks: chunks, Lag: o.Lag, Wide: o.Wide, Write: o.Write, After: o.WriteAfter}
		switch {
		case o.Kind == Reduce:
			x.Kind = LocalReduce
			x.Inputs = append([]Input(nil), o.Inputs...)
		case o.Kind == Copy:
			x.Kind, x.Read = LocalCopy, o.Read
		case o.From == rank:
			x.Kind, x.Peer, x.Read, x.Write, x.After = LocalSend, o.To, o.Read, Ref{}, o.ReadAfter
		default:
			x.Kind, x.Peer, x.Held = LocalRecv, o.From, o.Write.Space == Slot
		}
		l.Ops = append(l.Ops, x)
	}
	for i := range l.Ops {
		o := &l.Ops[i]
		o.After = renumber(o.After, place)
		for k := range o.Inputs {
			if r := o.Inputs[k].Recv; r >= 0 {
				o.Inputs[k].Recv = place[r]
			}
		}
	}
	l.wires()
	return l
}

// renumber returns the waits by local indices. They all exist, because all ops
// of a region have the same chunks, so an op with chunks waits only for ops with
// chunks.
func renumber(after []Dep, place []int) []Dep {
	var out []Dep
	for _, d := range after {
		if at := place[d.Op]; at >= 0 {
			out = append(out, Dep{Op: at, Back: d.Back})
		}
	}
	return out
}

// wires lists the ops of each wire.
func (l *Local) wires() {
	l.Sends, l.Recvs = nil, nil
	add := func(wires []Wire, peer, op int, chunks int64) []Wire {
		for i := range wires {
			if w := &wires[i]; w.Peer == peer {
				w.Ops = append(w.Ops, op)
				w.Messages += chunks
				return wires
			}
		}
		return append(wires, Wire{Peer: peer, Messages: chunks, Ops: []int{op}})
	}
	for i := range l.Ops {
		switch o := &l.Ops[i]; o.Kind {
		case LocalSend:
			l.Sends = add(l.Sends, o.Peer, i, o.Chunks)
		case LocalRecv:
			l.Recvs = add(l.Recvs, o.Peer, i, o.Chunks)
		case LocalReduce, LocalCopy:
		}
	}
}

// Locals returns the part of a rank on each rail in use.
func (p *Plan) Locals(rank int) []*Local {
	var all []*Local
	for _, prog := range p.Programs {
		all = append(all, prog.Local(rank))
	}
	return all
}

// SendRecv returns the local programs, one for each rail, of a rank that sends
// sent bytes to one rank and receives received bytes from another (or the same).
// The two directions do not wait for each other, so that ranks that exchange
// cannot block each other. The other ends have the plans of a Send of the same
// number of bytes.
func (p *Planner) SendRecv(rank, to int, sent int64, from int, received int64) ([]*Local, error) {
	out, err := p.Plan(Request{Op: Send, Bytes: sent, From: rank, To: to})
	if err != nil {
		return nil, err
	}
	in, err := p.Plan(Request{Op: Send, Bytes: received, From: from, To: rank})
	if err != nil {
		return nil, err
	}
	a, b := out.Locals(rank), in.Locals(rank)
	if len(a) < len(b) {
		a, b = b, a
	}
	for i, l := range b {
		a[i].Ops = append(a[i].Ops, l.Ops...) // they have no waits and inputs, so nothing needs new indices
		a[i].wires()
	}
	return a, nil
}
