package deepseek41

import (
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// cache is the KV cache of one sequence. Reads change nothing. The next step overwrites what
// a step that was not committed has written, because rings keep the last positions and the
// caches of entries keep them by number. It implements decoder.Cache.
type cache struct {
	b        kernels.Backend
	c        *Config
	context  int // most positions
	capacity int // of the caches of entries, in positions
	span     parallel.Range
	layers   []layerState // [Layers] of which those outside of span are empty
	ids      []int32      // ring of folded token ids, position p in slot p mod its length; nil without engram
}

// layerState is the KV cache of one layer.
type layerState struct {
	raw    []uint16     // [RawRows][hd] float16 key/value rows, position p in slot p mod RawRows
	source *sourceState // of a layer that makes entries
}

// sourceState is the entries of a layer, their index keys, and the inputs of those of ratio 2.
type sourceState struct {
	ratio    int
	ringRows int       // depth of the rings, in positions; 0 with ratio 1
	kv       []float32 // [ringRows][hd] projections, position p in slot p mod ringRows
	score    []float32 // [ringRows][hd] gates
	entries  []uint16  // [capacity/ratio][hd] float16
	keys     []uint16  // [capacity/ratio][IndexDim] float16
}

// idRows is the depth of the ring of token ids: those before the first token of a step, the
// rewind before it, and the step.
func (c *Config) idRows(maxTokens int) int {
	if !c.Engram.exists() {
		return 0
	}
	return c.Engram.Gram - 1 + hyper.Rewind + maxTokens
}

// ringRows is the depth of the rings of a source.
func ringRows(ratio, maxTokens int) int {
	if ratio < 2 {
		return 0
	}
	return hyper.RingRows(ratio, maxTokens)
}

// NewCache implements decoder.Network: it allocates the rings; Grow grows the caches.
func (m *forward) NewCache() (*cache, error) {
	c := m.c
	s := &cache{b: m.Backend, c: c, context: m.Context, span: m.Span, layers: make([]layerState, c.Layers)}
	fail := func(err error) (*cache, error) {
		s.Free()
		return nil, fmt.Errorf("KV cache of a new sequence: %w", err)
	}
	var err error
	if s.ids, err = kernels.Make[int32](m.Backend, c.idRows(m.MaxTokens)); err != nil {
		return fail(err)
	}
	for i := s.span.Start; i < s.span.End; i++ {
		l := &s.layers[i]
		if l.raw, err = kernels.Make[uint16](m.Backend, c.RawRows(m.MaxTokens)*c.HeadDim); err != nil {
			return fail(err)
		}
		if m.w.layers[i].source == nil {
			continue
		}
		ratio := c.Roles[i].Ratio
		l.source = &sourceState{ratio: ratio, ringRows: ringRows(ratio, m.MaxTokens)}
		for _, ring := range []*[]float32{&l.source.kv, &l.source.score} {
			if *ring, err = kernels.Make[float32](m.Backend, l.source.ringRows*c.HeadDim); err != nil {
				return fail(err)
			}
		}
	}
	return s, nil
}

// Grow implements decoder.Cache: it makes room for the entries of length positions.
func (s *cache) Grow(length int) error {
	if length <= s.capacity {
		return nil
	}
	room := decoder.Capacity(hyper.FirstCapacity, length, s.context)
	for i := range s.layers {
		x := s.layers[i].source
		if x == nil {
			continue
		}
		n := (room + x.ratio - 1) / x.ratio
		err := kernels.Enlarge(s.b, &x.entries, n*s.c.HeadDim)
		if err == nil {
			err = kernels.Enlarge(s.b, &x.keys, n*s.c.IndexDim)
		}
		if err != nil {
			return fmt.Errorf("compressed KV cache of %d tokens, layer %d: %w", room, i, err)
		}
	}
	s.capacity = room
	return nil
}

// Free implements decoder.Cache.
func (s *cache) Free() {
	kernels.Release(s.b, s.ids)
	for i := range s.layers {
		l := &s.layers[i]
		kernels.Release(s.b, l.raw)
		if x := l.source; x != nil {
			kernels.Release(s.b, x.kv)
			kernels.Release(s.b, x.score)
			kernels.Release(s.b, x.entries)
			kernels.Release(s.b, x.keys)
		}
	}
}

// remember stores the folded id of the token at a position.
func (s *cache) remember(pos int, id int32) { s.ids[pos%len(s.ids)] = id }

// folded writes the folded ids [Gram] of the token at a position and of those before it, the
// token first; pad stands for those before the sequence.
func (s *cache) folded(ids []uint64, pos int, pad uint64) {
	for i := range ids {
		if ids[i] = pad; pos >= i {
			ids[i] = uint64(s.ids[(pos-i)%len(s.ids)])
		}
	}
}

// Layout implements decoder.Network.
func (m *forward) Layout() string { return "deepseek41 rings by position, 1" + m.OfSpan() }

// State implements decoder.Cache: of each layer the rows of the rings that a step or a rewind
// may still read, by position, and the entries that the committed tokens complete. It depends
// on positions alone, because the depth of the rings depends on the longest step and differs
// between models.
func (s *cache) State(first, length, peak int) []snapshot.Section {
	return s.StateOf(s.span, first, length, peak)
}

// StateOf implements decoder.Cache.
func (s *cache) StateOf(layers parallel.Range, first, length, peak int) []snapshot.Section {
	var list []snapshot.Section
	lowest := max(peak-hyper.Rewind, 0) // position that the sequence can be rewound to
	ring := func(name string, parts [][]byte) {
		list = append(list, snapshot.Section{Name: name, Parts: parts, Overwritten: true})
	}
	if s.ids != nil {
		ring("token ids", hyper.Ring(s.ids, len(s.ids), max(first, lowest-s.c.Engram.Gram+1), length))
	}
	for i := layers.Start; i < layers.End; i++ {
		l, layer := &s.layers[i], fmt.Sprintf("layer %d ", i)
		ring(layer+"raw", hyper.Ring(l.raw, len(l.raw)/s.c.HeadDim, max(first, lowest-s.c.Window+1), length))
		x := l.source
		if x == nil {
			continue
		}
		if x.ringRows > 0 {
			from := max(first, lowest/x.ratio*x.ratio)
			ring(layer+"compressor kv", hyper.Ring(x.kv, x.ringRows, from, length))
			ring(layer+"compressor score", hyper.Ring(x.score, x.ringRows, from, length))
		}
		from, to := first/x.ratio, length/x.ratio
		list = append(list,
			snapshot.Section{Name: layer + "entries", Parts: [][]byte{hyper.AsBytes(x.entries[from*s.c.HeadDim : to*s.c.HeadDim])}},
			snapshot.Section{Name: layer + "index keys", Parts: [][]byte{hyper.AsBytes(x.keys[from*s.c.IndexDim : to*s.c.IndexDim])}})
	}
	return list
}
