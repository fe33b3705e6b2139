package deepseek2

import (
	"fmt"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/snapshot"
)

// cache is the KV cache of one sequence: the row of every position in every layer. What
// a step that is not committed has written is overwritten by the next. It implements
// decoder.Cache.
type cache struct {
	b        kernels.Backend
	context  int // most positions
	width    int // of a row
	capacity int // in positions
	// layers [Layers] are float16 rows [capacity][R+RotDim]: the normed latent, then
	// the rotated key.
	layers [][]uint16
}

// firstCapacity is the room that a new sequence has, in positions.
const firstCapacity = 256

// capacityFor is the capacity of a sequence that has held length positions:
// firstCapacity, doubled until it is enough, and at most the context. It depends on
// nothing else, so that what a request can need is known before it runs. The doubling
// makes copying cost amortised constant time.
func capacityFor(length, context int) int {
	capacity := firstCapacity
	for capacity < length {
		capacity *= 2
	}
	return min(capacity, max(context, length))
}

// layerBytes is the memory of one layer's rows at a capacity, in whole pages.
func layerBytes(c *Config, capacity int) int64 {
	return decoder.Pages(2 * int64(capacity) * int64(c.rowDim()))
}

// sequenceBytes is the memory of a sequence that has held length positions.
func sequenceBytes(c *Config, length, context int) int64 {
	if length <= 0 {
		return 0
	}
	return int64(c.Layers) * layerBytes(c, capacityFor(length, context))
}

// growthBytes is the most that a sequence holds in addition while the rows of a layer
// are copied to a larger place: the smaller one.
func growthBytes(c *Config, context int) int64 {
	before := 0
	for capacity := firstCapacity; capacity < context; capacity *= 2 {
		before = capacity
	}
	return layerBytes(c, before)
}

// NewCache implements decoder.Network.
func (m *forward) NewCache() (*cache, error) {
	return &cache{b: m.b, context: m.context, width: m.c.rowDim(), layers: make([][]uint16, m.c.Layers)}, nil
}

// Grow implements decoder.Cache.
func (s *cache) Grow(length int) error {
	if length <= s.capacity {
		return nil
	}
	room := capacityFor(length, s.context)
	for i, rows := range s.layers {
		if len(rows) >= room*s.width { // a Grow that failed came this far
			continue
		}
		bigger, err := kernels.Make[uint16](s.b, room*s.width)
		if err != nil {
			return fmt.Errorf("%s: KV cache of %d tokens, layer %d: %w", arch, room, i, err)
		}
		copy(bigger, rows)
		kernels.Release(s.b, rows)
		s.layers[i] = bigger
	}
	s.capacity = room
	return nil
}

// Free implements decoder.Cache.
func (s *cache) Free() {
	for _, rows := range s.layers {
		kernels.Release(s.b, rows)
	}
}

// Layout implements decoder.Network.
func (m *forward) Layout() string { return "deepseek2 latent rows by position, 1" }

// State implements decoder.Cache: the rows of the committed positions of each layer.
func (s *cache) State(length, _ int) []snapshot.Section {
	list := make([]snapshot.Section, len(s.layers))
	for i, rows := range s.layers {
		x := rows[:length*s.width]
		list[i] = snapshot.Section{Name: fmt.Sprintf("layer %d rows", i), Parts: [][]byte{
			unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))}}
	}
	return list
}
