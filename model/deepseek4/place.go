package deepseek4

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// sizesOf is what a placement divides. types are those of the matrices that are divided
// by columns, [Layers] each, because columns can be cut only between blocks.
func sizesOf(c *Config, oB, sharedDown []gguf.Type) parallel.Sizes {
	return parallel.Sizes{
		Experts: c.Experts, Vocabulary: c.Vocab,
		Heads:  decoder.ColumnParts(c.OGroups*c.ORank, c.OGroups, oB),
		Shared: decoder.ColumnParts(c.SharedFF, decoder.MostParts, sharedDown),
	}
}

// sizes is what a placement divides.
func (w *weights) sizes(c *Config) parallel.Sizes {
	oB, down := make([]gguf.Type, len(w.layers)), make([]gguf.Type, len(w.layers))
	for i := range w.layers {
		oB[i], down[i] = w.layers[i].oB.Type, w.layers[i].experts.SharedDown.Type
	}
	return sizesOf(c, oB, down)
}

// local is what a rank computes of the attention of a layer: some groups of heads.
type local struct {
	heads  int            // of them
	groups int            // of the output projection
	qB     kernels.Weight // [heads*hd][QRank]
	sinks  []float32      // [heads]
	oA     kernels.Weight // groups x [ORank][H*hd/OGroups]
}

// local is this rank's part of a layer, which must not be empty.
func (m *forward) local(l *layer) local {
	c, own, parts := m.c, m.Heads.Own(), m.Sizes.Heads
	first, heads := own.Start*c.Heads/parts, own.Len()*c.Heads/parts
	return local{
		heads: heads, groups: own.Len() * c.OGroups / parts,
		qB:    l.qB.RowRange(first*c.HeadDim, (first+heads)*c.HeadDim),
		sinks: l.sinks[first : first+heads],
		oA:    l.oA.RowGroups(c.OGroups).SliceRange(own.Start*c.OGroups/parts, own.End*c.OGroups/parts),
	}
}
