package plan

import "fmt"

// before reports whether chunk c of op a precedes chunk d of op b in the order
// of the package comment.
func (p *Program) before(a int, c int64, b int, d int64) bool {
	x, y := c+int64(p.Ops[a].Lag), d+int64(p.Ops[b].Lag)
	return x < y || x == y && a < b
}

// validate proves that the program cannot block: every dependence points
// backward, stays within a rank and ties regions of the same chunks, and no
// message that must arrive before the release of a held message is behind it on
// its wire.
func (p *Program) validate() error {
	const c = 1 << 20 // any chunk: the order is the same for all
	for i := range p.Ops {
		o := &p.Ops[i]
		for _, side := range []struct {
			rank  int
			after []Dep
		}{{o.From, o.ReadAfter}, {o.To, o.WriteAfter}} {
			for _, d := range side.after {
				j := &p.Ops[d.Op]
				if side.rank != j.To && side.rank != j.From {
					return fmt.Errorf("op %d on rank %d waits for op %d between %d and %d", i, side.rank, d.Op, j.From, j.To)
				}
				if j.Elems != o.Elems {
					return fmt.Errorf("op %d of %d elements waits for op %d of %d", i, o.Elems, d.Op, j.Elems)
				}
				if !p.before(d.Op, c-int64(d.Back), i, c) {
					return fmt.Errorf("op %d waits for op %d, which comes after it", i, d.Op)
				}
			}
		}
		if o.Kind != Reduce {
			continue
		}
		for _, in := range o.Inputs {
			if in.Recv < 0 {
				continue
			}
			m := &p.Ops[in.Recv]
			for k := range p.Ops {
				x := &p.Ops[k]
				if x.Kind != Move || x.From != m.From || x.To != m.To || k == in.Recv || x.Elems == 0 {
					continue
				}
				// The chunk of x that is the first after chunk c of m.
				d := c + int64(m.Lag) - int64(x.Lag)
				if k < in.Recv {
					d++
				}
				if p.before(k, d, i, c) {
					return fmt.Errorf("op %d holds a slot for op %d while op %d comes on the same wire", in.Recv, i, k)
				}
			}
			if m.Lag != o.Lag {
				return fmt.Errorf("op %d holds its slot for op %d of another round", in.Recv, i)
			}
		}
	}
	return nil
}
