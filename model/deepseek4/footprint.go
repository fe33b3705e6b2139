package deepseek4

import (
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

// footprint is the memory of KV caches for a configuration and a length of steps,
// in bytes. Every buffer counts as whole pages.
type footprint struct {
	context int
	totals  []int64 // of a sequence at each capacity: hyper.FirstCapacity, doubled, up to the context
	raw     int64   // sliding windows of a sequence
	rings   int64   // rings of its compressors
	c       *Config
}

func newFootprint(c *Config, context, maxTokens int) footprint {
	f := footprint{context: context, c: c}
	for _, r := range c.Ratios {
		f.raw += decoder.Pages(2 * int64(c.RawRows(maxTokens)) * int64(c.HeadDim))
		for _, width := range ringWidths(c, r) {
			f.rings += 2 * decoder.Pages(4*int64(hyper.RingRows(r, maxTokens))*int64(width)) // projections and gates
		}
	}
	for capacity := hyper.FirstCapacity; ; capacity *= 2 {
		capacity = min(capacity, context)
		f.totals = append(f.totals, f.raw+f.rings+f.compressed(4, capacity)+f.compressed(128, capacity))
		if capacity == context {
			return f
		}
	}
}

// ringWidths lists the widths of the projections of a layer's compressors, and
// cacheDims those of their entries: attention's, then the indexer's.
func ringWidths(c *Config, ratio int) []int {
	switch ratio {
	case 4: // blocks overlap, so that each position is projected for two of them
		return []int{2 * c.HeadDim, 2 * c.IndexDim}
	case 128:
		return []int{c.HeadDim}
	}
	return nil
}

func cacheDims(c *Config, ratio int) []int {
	switch ratio {
	case 4:
		return []int{c.HeadDim, c.IndexDim}
	case 128:
		return []int{c.HeadDim}
	}
	return nil
}

// compressed is the bytes of the compressed caches of the layers of a ratio, at a
// capacity in positions.
func (f footprint) compressed(ratio, capacity int) (n int64) {
	for _, r := range f.c.Ratios {
		if r != ratio {
			continue
		}
		for _, dim := range cacheDims(f.c, r) {
			n += f.cache(r, dim, capacity)
		}
	}
	return n
}

// cache is the bytes of one compressed cache.
func (footprint) cache(ratio, dim, capacity int) int64 {
	return decoder.Pages(2 * int64((capacity+ratio-1)/ratio) * int64(dim))
}

// sequence is the bytes of a sequence that has held length positions, at most the
// context; 0 of one that has held none.
func (f footprint) sequence(length int) int64 {
	if length <= 0 {
		return 0
	}
	i := 0
	for capacity := hyper.FirstCapacity; capacity < length && i < len(f.totals)-1; capacity *= 2 {
		i++
	}
	return f.totals[i]
}

// checkpoint is the most bytes of a checkpoint: the rows before a position that the window
// and the compressors read there, most at the end of a block.
func (c *Config) checkpoint() (n int64) {
	for _, r := range c.Ratios {
		n += 2 * int64(c.Window-1) * int64(c.HeadDim)
		rows := r - 1
		if r == 4 {
			rows += r
		}
		for _, width := range ringWidths(c, r) {
			n += 2 * 4 * int64(rows) * int64(width)
		}
	}
	return decoder.Pages(n)
}

// growth is the most bytes that a sequence holds in addition while one of its
// caches is copied to a larger one: the smaller one.
func (f footprint) growth() (most int64) {
	before := decoder.LastCapacity(hyper.FirstCapacity, f.context)
	for _, r := range f.c.Ratios {
		for _, dim := range cacheDims(f.c, r) {
			most = max(most, f.cache(r, dim, before))
		}
	}
	return most
}
