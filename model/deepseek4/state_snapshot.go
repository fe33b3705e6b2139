package deepseek4

import (
	"fmt"

	"ringmaster/model/hyper"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// Layout implements decoder.Network.
func (m *forward) Layout() string { return "deepseek4 rings by position, 2" + m.OfSpan() }

// State implements decoder.Cache: of each layer the rows of the rings that a step or a
// rewind may still read, by position, and the entries of the compressed caches that the
// committed tokens complete. It depends on positions alone, because the depth of the
// rings depends on the longest step and differs between models.
func (s *cache) State(first, length, peak int) []snapshot.Section {
	return s.StateOf(s.span, first, length, peak)
}

// StateOf implements decoder.Cache.
func (s *cache) StateOf(layers parallel.Range, first, length, peak int) []snapshot.Section {
	var list []snapshot.Section
	add := func(layer int, name string, overwritten bool, parts ...[]byte) {
		list = append(list, snapshot.Section{Name: fmt.Sprintf("layer %d %s", layer, name), Parts: parts, Overwritten: overwritten})
	}
	lowest := max(peak-hyper.Rewind, 0) // position that the sequence can be rewound to
	for i := layers.Start; i < layers.End; i++ {
		l := &s.layers[i]
		add(i, "raw", true, hyper.Ring(l.raw, len(l.raw)/s.headDim, max(first, lowest-s.window+1), length)...)
		for _, c := range []struct {
			name  string
			state *compressorState
		}{{"compressor", l.comp}, {"indexer", l.index}} {
			if c.state == nil {
				continue
			}
			from := max(first, lowest/c.state.ratio*c.state.ratio-c.state.reach)
			add(i, c.name+" kv", true, hyper.Ring(c.state.kv, c.state.rows, from, length)...)
			add(i, c.name+" score", true, hyper.Ring(c.state.score, c.state.rows, from, length)...)
			add(i, c.name+" entries", false, hyper.AsBytes(c.state.cache[first/c.state.ratio*c.state.dim:length/c.state.ratio*c.state.dim]))
		}
	}
	return list
}
