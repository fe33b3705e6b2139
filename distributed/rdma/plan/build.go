package plan

// The builder appends moves and reductions. It records which op reads and writes
// which chunk, because the dependences follow from that.

// scratchRegion is scratch memory of a rank that holds the chunks of a region for
// a while.
type scratchRegion struct {
	rank    int
	writer  int
	readers []int
	ref     Ref
}

// data is a region at a rank that ops may read.
type data struct {
	ref     Ref
	scratch *scratchRegion // not nil if the region is scratch memory
	by      int            // the op that writes it, -1 if it existed before
	held    bool           // it is in the slots of op by
	wide    bool
	lag     int // of op by
}

// region is a part of a block that one stripe works on, in elements. rails is how
// many rails carry the block.
type region struct {
	off, n int64
	rails  int
}

type builder struct {
	cfg        Config
	req        Request
	rail       int
	blocks     []int // rails of each rank's block
	directions int
	chunk      int64 // elements
	elem       int64
	hop        int // rounds from an op to the op that it feeds at another rank
	prog       *Program
	scratch    []*scratchRegion
}

// stripe returns the part that direction d of this rail carries of a rank's block,
// which begins at element start and has n elements. Rails that do not carry the
// block have an empty part.
func (b *builder) stripe(start, n int64, d, rank int) region {
	rails := b.blocks[rank]
	if b.rail >= rails {
		return region{off: start, rails: rails}
	}
	off, length := Slice(n, d*rails+b.rail, b.directions*rails)
	return region{off: start + off, n: length, rails: rails}
}

// at returns a region of the user's memory.
func (b *builder) at(s Space, g region) Ref {
	return Ref{Space: s, Off: g.off * b.elem, Stride: b.chunk * b.elem}
}

// have returns a region that exists from the beginning.
func (b *builder) have(s Space, g region) data { return data{ref: b.at(s, g), by: -1, lag: -1} }

// into is where an op writes: the user's memory, a slot, or, with the zero Ref,
// scratch memory.
type into struct {
	ref     Ref
	scratch bool
}

var (
	inSlot    = into{ref: Ref{Space: Slot}}
	inScratch = into{scratch: true}
)

func (b *builder) add(o Op) int {
	b.prog.Ops = append(b.prog.Ops, o)
	return len(b.prog.Ops) - 1
}

// writes sets where op i writes and returns the resulting region.
func (b *builder) writes(i int, w into) data {
	o := &b.prog.Ops[i]
	d := data{ref: w.ref, by: i, wide: o.Wide, lag: o.Lag, held: w.ref.Space == Slot}
	if w.scratch {
		d.scratch = &scratchRegion{rank: o.To, writer: i}
		d.ref = Ref{Space: Scratch}
		b.scratch = append(b.scratch, d.scratch)
		o.writeTo = d.scratch
	}
	o.Write = d.ref
	return d
}

// reads notes that op i reads the data, and returns what the op waits for.
func reads(i int, d data) []Dep {
	if d.scratch != nil {
		d.scratch.readers = append(d.scratch.readers, i)
	}
	if d.by < 0 {
		return nil
	}
	return []Dep{{Op: d.by}}
}

// move sends the data from one rank to the next, lag rounds behind the op that
// made it.
func (b *builder) move(d data, g region, from, to, lag int, w into) data {
	i := b.add(Op{Kind: Move, From: from, To: to, Read: d.ref, Elems: g.n, Wide: d.wide, Lag: lag, rails: g.rails, readFrom: d.scratch})
	b.prog.Ops[i].ReadAfter = reads(i, d)
	return b.writes(i, w)
}

// reduce combines regions at a rank in the given order, in the round in which the
// last of them arrives. after are further waits.
func (b *builder) reduce(rank int, in []data, g region, wide bool, w into, after []Dep) data {
	lag := 0
	for _, d := range in {
		lag = max(lag, d.lag)
	}
	i := b.add(Op{Kind: Reduce, From: rank, To: rank, Elems: g.n, Wide: wide, Lag: lag, rails: g.rails})
	var inputs []Input
	for _, d := range in {
		recv := -1
		if d.held {
			recv = d.by
		}
		inputs = append(inputs, Input{Ref: d.ref, Wide: d.wide, Recv: recv, from: d.scratch})
		after = append(after, reads(i, d)...)
	}
	b.prog.Ops[i].Inputs, b.prog.Ops[i].WriteAfter = inputs, after
	return b.writes(i, w)
}

// spread sends the data of root to all other ranks. Each forwards it to those
// behind it, one hop later. where returns where a rank keeps it.
func (b *builder) spread(d data, g region, root, direction, lag int, where func(rank int) into) map[int]data {
	has := map[int]data{root: d}
	t := b.cfg.Topology
	for k := 1; k < t.N; k++ {
		// On a ring the nearest is first, and each rank begins with a different
		// peer.
		to := (root + k) % t.N
		b.forward(has, t.path(root, to, direction), g, root, lag, where)
	}
	return has
}

// forward sends data along a path, from the last rank on it that has the data.
func (b *builder) forward(has map[int]data, way []int, g region, from, lag int, where func(rank int) into) {
	for i, to := range way {
		if _, ok := has[to]; !ok {
			has[to] = b.move(has[from], g, from, to, lag+i*b.hop, where(to))
		}
		from = to
	}
}

// finish lays out the scratch memory. The window of a region covers its writer to
// the last of its readers and two more chunks, so that the writer seldom waits.
func (b *builder) finish() *Program {
	p := b.prog
	top := make([]int64, p.ranks)
	for _, s := range b.scratch {
		w := &p.Ops[s.writer]
		window := int64(1)
		for _, r := range s.readers {
			window = max(window, int64(p.Ops[r].Lag-w.Lag)+2)
		}
		chunks := p.Chunks(s.writer)
		again := window < chunks
		if !again {
			window = chunks
		}
		bytes := b.chunk * p.width(w.Wide)
		s.ref = Ref{Space: Scratch, Off: top[s.rank], Stride: bytes, Window: int(window)}
		top[s.rank] += bytes * window
		p.Scratch = max(p.Scratch, top[s.rank])
		for _, r := range s.readers {
			if again {
				w.WriteAfter = append(w.WriteAfter, Dep{Op: r, Back: int(window)})
			}
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.readFrom != nil {
			o.Read = o.readFrom.ref
		}
		if o.writeTo != nil {
			o.Write = o.writeTo.ref
		}
		for k := range o.Inputs {
			if s := o.Inputs[k].from; s != nil {
				o.Inputs[k].Ref = s.ref
			}
		}
	}
	return p
}
