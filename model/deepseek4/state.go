package deepseek4

import (
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
	"ringmaster/parallel"
)

// cache is the KV cache of one sequence. Reads change nothing. The next step overwrites
// what a step that was not committed has written, because rings keep the last positions
// and compressed caches keep entries by number. It implements decoder.Cache.
type cache struct {
	b        kernels.Backend
	context  int // most positions
	window   int // of attention, in positions
	headDim  int // width of a row of raw
	capacity int // of the compressed caches, in positions
	span     parallel.Range
	layers   []layerState // [Layers] of which those outside of span are empty
}

// layerState is the KV cache of one layer.
type layerState struct {
	raw   []uint16         // [rawRows][hd] float16 key/value rows, position p in slot p mod rawRows
	comp  *compressorState // ratio > 0
	index *compressorState // ratio 4: of the indexer
}

// compressorState is the inputs and the output of a compressor.
type compressorState struct {
	kv    []float32 // [rows][width] projections, position p in slot p mod rows
	score []float32 // [rows][width] gates, position bias added
	cache []uint16  // [capacity/ratio][dim] float16 entries
	rows  int       // depth of the rings, in positions
	ratio int       // positions of an entry
	reach int       // positions before an entry's block that it reads: the block before it, or none
	dim   int       // width of an entry
}

// NewCache implements decoder.Network: it allocates the rings; Grow grows the caches.
func (m *forward) NewCache() (*cache, error) {
	s := &cache{b: m.Backend, context: m.Context, window: m.c.Window, headDim: m.c.HeadDim, span: m.Span, layers: make([]layerState, len(m.w.layers))}
	for i := s.span.Start; i < s.span.End; i++ {
		l, w := &s.layers[i], &m.w.layers[i]
		var err error
		if l.raw, err = kernels.Make[uint16](m.Backend, m.c.RawRows(m.MaxTokens)*m.c.HeadDim); err == nil && w.comp != nil {
			l.comp, err = m.newCompressorState(w, w.comp)
		}
		if err == nil && w.index != nil {
			l.index, err = m.newCompressorState(w, w.index)
		}
		if err != nil {
			s.Free()
			return nil, fmt.Errorf("KV cache of a new sequence, layer %d: %w", i, err)
		}
	}
	return s, nil
}

func (m *forward) newCompressorState(l *layer, c *compressor) (*compressorState, error) {
	s := &compressorState{rows: hyper.RingRows(l.ratio, m.MaxTokens), ratio: l.ratio, dim: c.dim}
	if l.overlap {
		s.reach = l.ratio
	}
	var err error
	if s.kv, err = kernels.Make[float32](m.Backend, s.rows*c.width); err != nil {
		return s, err
	}
	s.score, err = kernels.Make[float32](m.Backend, s.rows*c.width)
	return s, err
}

// Grow implements decoder.Cache: it makes room for the compressed entries of length
// positions.
func (s *cache) Grow(length int) error {
	if length <= s.capacity {
		return nil
	}
	room := decoder.Capacity(hyper.FirstCapacity, length, s.context)
	for i := range s.layers {
		for _, c := range []*compressorState{s.layers[i].comp, s.layers[i].index} {
			if c == nil {
				continue
			}
			if err := kernels.Enlarge(s.b, &c.cache, (room+c.ratio-1)/c.ratio*c.dim); err != nil {
				return fmt.Errorf("compressed KV cache of %d tokens, layer %d: %w", room, i, err)
			}
		}
	}
	s.capacity = room
	return nil
}

// Free implements decoder.Cache.
func (s *cache) Free() {
	for i := range s.layers {
		l := &s.layers[i]
		kernels.Release(s.b, l.raw)
		for _, c := range []*compressorState{l.comp, l.index} {
			if c == nil {
				continue
			}
			kernels.Release(s.b, c.kv)
			kernels.Release(s.b, c.score)
			kernels.Release(s.b, c.cache)
		}
	}
}
