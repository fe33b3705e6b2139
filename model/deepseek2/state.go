package deepseek2

import (
	"fmt"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// cache is the KV cache of one sequence: the row of every position in every layer, and
// its key in those with an indexer. The next step overwrites what a step that was not
// committed has written. It implements decoder.Cache.
type cache struct {
	b        kernels.Backend
	c        *Config
	span     parallel.Range
	context  int // most positions
	capacity int // in positions
	// rows [Layers] are float16 [capacity][R+RotDim]: the normed latent, then the
	// rotated key. Layers outside of span have neither rows nor keys.
	rows [][]uint16
	keys [][]uint16 // [Layers] float16 [capacity][Index.Dim] of the indexer; nil in layers without
}

// firstCapacity is the room that a new sequence has, in positions.
const firstCapacity = 256

// rowBytes and keyBytes are the memory of a layer's rows and of its indexer's keys at a
// capacity, in whole pages.
func rowBytes(c *Config, capacity int) int64 {
	return decoder.Pages(2 * int64(capacity) * int64(c.rowDim()))
}

func keyBytes(c *Config, capacity int) int64 {
	return decoder.Pages(2 * int64(capacity) * int64(c.Index.Dim))
}

// sequenceBytes is the memory of some layers of a sequence that has held length positions:
// of its rows and of its indexers' keys.
func sequenceBytes(c *Config, layers parallel.Range, length, context int) (rows, keys int64) {
	if length <= 0 {
		return 0, 0
	}
	capacity := decoder.Capacity(firstCapacity, length, context)
	for i := layers.Start; i < layers.End; i++ {
		rows += rowBytes(c, capacity)
		if c.Index.has(i) {
			keys += keyBytes(c, capacity)
		}
	}
	return rows, keys
}

// growthBytes is the most that a sequence holds in addition while the rows of a layer
// are copied to a larger place: the smaller one.
func growthBytes(c *Config, context int) int64 {
	before := decoder.LastCapacity(firstCapacity, context)
	return max(rowBytes(c, before), keyBytes(c, before))
}

// NewCache implements decoder.Network.
func (m *forward) NewCache() (*cache, error) {
	n := m.c.Layers
	return &cache{b: m.Backend, c: m.c, span: m.Span, context: m.Context, rows: make([][]uint16, n), keys: make([][]uint16, n)}, nil
}

// each calls f with every part of the cache, its name, the number of elements of one
// position, until f fails.
func (s *cache) each(f func(layer int, what string, width int, part *[]uint16) error) error {
	for i := s.span.Start; i < s.span.End; i++ {
		if err := f(i, "rows", s.c.rowDim(), &s.rows[i]); err != nil {
			return err
		}
		if !s.c.Index.has(i) {
			continue
		}
		if err := f(i, "index keys", s.c.Index.Dim, &s.keys[i]); err != nil {
			return err
		}
	}
	return nil
}

// Grow implements decoder.Cache.
func (s *cache) Grow(length int) error {
	if length <= s.capacity {
		return nil
	}
	room := decoder.Capacity(firstCapacity, length, s.context)
	err := s.each(func(layer int, what string, width int, part *[]uint16) error {
		if len(*part) >= room*width { // an earlier Grow that failed came this far
			return nil
		}
		if err := kernels.Enlarge(s.b, part, room*width); err != nil {
			return fmt.Errorf("%s: KV cache of %d tokens, layer %d, %s: %w", s.c.Arch, room, layer, what, err)
		}
		return nil
	})
	if err == nil {
		s.capacity = room
	}
	return err
}

// Free implements decoder.Cache.
func (s *cache) Free() {
	for i := range s.rows {
		kernels.Release(s.b, s.rows[i])
		kernels.Release(s.b, s.keys[i])
	}
}

// Layout implements decoder.Network.
func (m *forward) Layout() string {
	if m.c.Index.TopK > 0 {
		return "deepseek2 latent rows and index keys by position, 1" + m.OfSpan()
	}
	return "deepseek2 latent rows by position, 1" + m.OfSpan()
}

// State implements decoder.Cache: what each layer keeps of the committed positions.
func (s *cache) State(first, length, peak int) []snapshot.Section {
	return s.StateOf(s.span, first, length, peak)
}

// StateOf implements decoder.Cache.
func (s *cache) StateOf(layers parallel.Range, first, length, _ int) (list []snapshot.Section) {
	_ = s.each(func(layer int, what string, width int, part *[]uint16) error {
		if layer < layers.Start || layer >= layers.End {
			return nil
		}
		x := (*part)[first*width : length*width]
		list = append(list, snapshot.Section{Name: fmt.Sprintf("layer %d %s", layer, what), Parts: [][]byte{
			unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))}})
		return nil
	})
	return list
}
