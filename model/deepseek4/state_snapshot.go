package deepseek4

import (
	"fmt"
	"unsafe"

	"ringmaster/model/snapshot"
)

// Layout implements decoder.Network.
func (m *forward) Layout() string { return "deepseek4 rings by position, 2" }

// State implements decoder.Cache: of each layer the rows of the rings that a step or a
// rewind may still read, by position, and the entries of the compressed caches that the
// committed tokens complete. It depends on positions alone, because the depth of the
// rings depends on the longest step and differs between models.
func (s *cache) State(first, length, peak int) []snapshot.Section {
	var list []snapshot.Section
	add := func(layer int, name string, overwritten bool, parts ...[]byte) {
		list = append(list, snapshot.Section{Name: fmt.Sprintf("layer %d %s", layer, name), Parts: parts, Overwritten: overwritten})
	}
	lowest := max(peak-rewind, 0) // position that the sequence can be rewound to
	for i := range s.layers {
		l := &s.layers[i]
		add(i, "raw", true, ring(l.raw, len(l.raw)/s.headDim, max(first, lowest-s.window+1), length)...)
		for _, c := range []struct {
			name  string
			state *compressorState
		}{{"compressor", l.comp}, {"indexer", l.index}} {
			if c.state == nil {
				continue
			}
			from := max(first, lowest/c.state.ratio*c.state.ratio-c.state.reach)
			add(i, c.name+" kv", true, ring(c.state.kv, c.state.rows, from, length)...)
			add(i, c.name+" score", true, ring(c.state.score, c.state.rows, from, length)...)
			add(i, c.name+" entries", false, asBytes(c.state.cache[first/c.state.ratio*c.state.dim:length/c.state.ratio*c.state.dim]))
		}
	}
	return list
}

// ring is the memory of positions [from, to) of a ring of so many rows, in their order,
// without those below 0.
func ring[T float32 | uint16](x []T, rows, from, to int) [][]byte {
	from = min(max(from, 0), to)
	width := len(x) / rows
	first, n := from%rows, to-from
	here := min(n, rows-first)
	return [][]byte{asBytes(x[first*width : (first+here)*width]), asBytes(x[:(n-here)*width])}
}

func asBytes[T float32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
