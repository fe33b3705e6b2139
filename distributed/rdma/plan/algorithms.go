package plan

// phase is how many hops a second phase runs behind the first. The reduced
// chunks of the first phase are then on their way back.
const phase = 2

// reduceAll: every rank gets the vectors of all and reduces them.
func (b *builder) reduceAll() {
	n := b.cfg.Topology.N
	for d := range b.directions {
		g := b.stripe(0, b.req.Bytes/b.elem, d, 0)
		has := make([]map[int]data, n)
		first := len(b.prog.Ops)
		for s := range n {
			has[s] = b.spread(b.have(Src, g), g, s, d, 0, b.keep)
		}
		last := len(b.prog.Ops)
		for r := range n {
			in := make([]data, n)
			for s := range n {
				in[s] = has[s][r]
			}
			// The destination may be the source, so its chunk must have left.
			var after []Dep
			for i := first; i < last; i++ {
				if o := &b.prog.Ops[i]; o.From == r && o.Read.Space == Src {
					after = append(after, Dep{Op: i})
				}
			}
			b.reduce(r, in, g, false, into{ref: b.at(Dst, g)}, after)
		}
	}
}

// keep returns where a rank stores a block until it has the blocks of all ranks:
// in its slot, if no other message arrives on the wire meanwhile.
func (b *builder) keep(int) into {
	if b.cfg.Topology.direct() {
		return inSlot
	}
	return inScratch
}

// scatter: rank q reduces slice q of all vectors. With back the result goes to
// all. block returns the slice in the source, result its place in the
// destination.
func (b *builder) scatter(block func(q int) (start, n int64), result func(q int) int64, back bool) {
	n := b.cfg.Topology.N
	for d := range b.directions {
		// All moves of the first phase come before the reductions, so that no
		// message follows a held message in its round.
		arrived := make([][]data, n)
		regions := make([]region, n)
		for q := range n {
			start, length := block(q)
			regions[q] = b.stripe(start, length, d, q)
			arrived[q] = make([]data, n)
		}
		for k := range n {
			for s := range n {
				q := (s + k) % n
				g := regions[q]
				has := map[int]data{s: b.have(Src, g)}
				if q != s {
					b.forward(has, b.cfg.Topology.path(s, q, d), g, s, 0, b.keep)
				}
				arrived[q][s] = has[q]
			}
		}
		sums := make([]data, n)
		for q := range n {
			_, length := block(q)
			out := b.stripe(result(q), length, d, q)
			sums[q] = b.reduce(q, arrived[q], regions[q], false, into{ref: b.at(Dst, out)}, nil)
		}
		if !back {
			continue
		}
		for q := range n {
			g := regions[q]
			b.spread(sums[q], g, q, d, sums[q].lag+phase*b.hop, func(int) into { return into{ref: b.at(Dst, g)} })
		}
	}
}

// chain: partial results go from rank 0 to the last, the result back.
func (b *builder) chain() {
	n := b.cfg.Topology.N
	g := b.stripe(0, b.req.Bytes/b.elem, 0, 0)
	sum := b.have(Src, g)
	sum.lag = 0
	for r := 1; r < n; r++ {
		lag := sum.lag
		if r > 1 {
			lag += b.hop
		}
		part := b.move(sum, g, r-1, r, lag, inSlot)
		w := inScratch
		wide := b.req.widens() && r < n-1
		if r == n-1 {
			w = into{ref: b.at(Dst, g)}
		}
		sum = b.reduce(r, []data{part, b.have(Src, g)}, g, wide, w, nil)
	}
	lag := sum.lag + phase*b.hop
	for r := n - 2; r >= 0; r-- {
		sum = b.move(sum, g, r+1, r, lag, into{ref: b.at(Dst, g)})
		lag += b.hop
	}
}

// chained reports whether neighbours in the order of the ranks are joined.
func (t Topology) chained() bool {
	for r := 1; r < t.N; r++ {
		if !t.Joined(r-1, r) {
			return false
		}
	}
	return true
}

// spreadAll: blocks go from their ranks to all others.
func (b *builder) spreadAll() {
	n := b.cfg.Topology.N
	for d := range b.directions {
		if b.req.Op == Broadcast {
			g := b.stripe(0, b.req.Bytes, d, b.req.Root)
			b.spread(b.have(Dst, g), g, b.req.Root, d, 0, func(int) into { return into{ref: b.at(Dst, g)} })
			continue
		}
		for r := range n {
			start, size := b.req.part(r)
			g := b.stripe(start, size, d, r)
			if b.req.Op == AllGather {
				own := b.stripe(0, size, d, r)
				i := b.add(Op{Kind: Copy, From: r, To: r, Read: b.at(Src, own), Elems: g.n, rails: g.rails})
				b.writes(i, into{ref: b.at(Dst, g)})
				b.spread(b.have(Src, own), g, r, d, 0, func(int) into { return into{ref: b.at(Dst, g)} })
				continue
			}
			b.spread(b.have(Dst, g), g, r, d, 0, func(int) into { return into{ref: b.at(Dst, g)} })
		}
	}
}

// gather: the part of every rank goes to the root, through the scratch memory of
// ranks between them.
func (b *builder) gather() {
	root := b.req.Root
	for d := range b.directions {
		for k := range b.cfg.Topology.N {
			r := (root + k) % b.cfg.Topology.N // nearest first on a ring
			start, size := b.req.part(r)
			own, g := b.stripe(0, size, d, r), b.stripe(start, size, d, r)
			where := func(rank int) into {
				if rank == root {
					return into{ref: b.at(Dst, g)}
				}
				return inScratch
			}
			if r == root {
				i := b.add(Op{Kind: Copy, From: r, To: r, Read: b.at(Src, own), Elems: g.n, rails: g.rails})
				b.writes(i, where(root))
				continue
			}
			b.forward(map[int]data{r: b.have(Src, own)}, b.cfg.Topology.path(r, root, d), g, r, 0, where)
		}
	}
}

// barrier: a message without content from every rank to all others.
func (b *builder) barrier() {
	g := region{n: 1, rails: 1}
	for r := range b.cfg.Topology.N {
		b.spread(data{by: -1, lag: -1}, g, r, 0, 0, func(int) into { return into{} })
	}
}

// direct: one move.
func (b *builder) direct() {
	g := b.stripe(0, b.req.Bytes, 0, 0)
	b.move(b.have(Src, g), g, b.req.From, b.req.To, 0, into{ref: b.at(Dst, g)})
}
