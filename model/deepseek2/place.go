package deepseek2

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// sizesOf is what a placement divides. types are those of the matrices that are divided
// by columns, [Layers] or fewer each, because columns can be cut only between blocks. The
// dense FFN of a leading layer is divided like the shared expert of the others.
func sizesOf(c *Config, out, sharedDown []gguf.Type) parallel.Sizes {
	groups := 1 // of heads, as equal parts
	for n := min(decoder.MostParts, c.Heads); n > 1; n-- {
		if c.Heads%n == 0 {
			groups = n
			break
		}
	}
	s := parallel.Sizes{
		Experts: c.Experts, Vocabulary: c.Vocab,
		Heads: decoder.ColumnParts(c.Heads*c.Value, groups, out),
	}
	if c.SharedFF > 0 {
		s.Shared = decoder.ColumnParts(c.SharedFF, decoder.MostParts, sharedDown)
	}
	return s
}

// denseParts is how many segments of the dense FFN of a leading layer a placement of
// those sizes divides: as many as of the shared expert, or 0 if the blocks of the types
// do not allow that. Every rank then has the whole.
func denseParts(c *Config, s parallel.Sizes, down []gguf.Type) int {
	if len(down) == 0 || s.Shared < 2 || decoder.ColumnParts(c.DenseFF, s.Shared, down) != s.Shared {
		return 0
	}
	return s.Shared
}

// denseParts is denseParts of the loaded matrices.
func (w *weights) denseParts(c *Config, s parallel.Sizes) int {
	var down []gguf.Type
	for i := range min(c.Dense, len(w.layers)) {
		down = append(down, w.layers[i].down.Type)
	}
	return denseParts(c, s, down)
}

// sizes is what a placement divides.
func (w *weights) sizes(c *Config) parallel.Sizes {
	var out, down []gguf.Type
	for i := range w.layers {
		out = append(out, w.layers[i].out.Type)
		if e := w.layers[i].experts; e != nil {
			down = append(down, e.SharedDown.Type)
		}
	}
	return sizesOf(c, out, down)
}

// local is what a rank computes of the attention of a layer: some groups of heads.
type local struct {
	heads int            // of them; the rest is empty if there are none
	q     kernels.Weight // [heads*(Nope+RotDim)][QRank or D]
	kB    kernels.Weight // heads x [R][Nope]
	vB    kernels.Weight // heads x [Value][R]
}

// local is this rank's part of a layer.
func (m *forward) local(l *layer) local {
	c, own, parts := m.c, m.Heads.Own(), m.Sizes.Heads
	if own.Len() == 0 {
		return local{}
	}
	first, end, head := own.Start*c.Heads/parts, own.End*c.Heads/parts, c.Nope+c.RotDim
	q := l.q
	if c.QRank > 0 {
		q = l.qB
	}
	return local{
		heads: end - first, q: q.RowRange(first*head, end*head),
		kB: l.kB.SliceRange(first, end), vB: l.vB.SliceRange(first, end),
	}
}
