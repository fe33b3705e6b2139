package deepseek41

import (
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

// footprint is the memory of KV caches for a configuration and a length of steps, in bytes.
// Every buffer counts as whole pages.
type footprint struct {
	c       *Config
	context int
	raw     int64 // sliding windows of a sequence
	rings   int64 // rings of its compressors, and its token ids
}

func newFootprint(c *Config, context, maxTokens int) footprint {
	f := footprint{c: c, context: context, rings: decoder.Pages(4 * int64(c.idRows(maxTokens)))}
	f.raw = int64(c.Layers) * decoder.Pages(2*int64(c.RawRows(maxTokens))*int64(c.HeadDim))
	for _, ratio := range c.sources() {
		f.rings += 2 * decoder.Pages(4*int64(ringRows(ratio, maxTokens))*int64(c.HeadDim)) // projections and gates
	}
	return f
}

// sources lists the ratios of the layers that make entries.
func (c *Config) sources() (ratios []int) {
	for i, role := range c.Roles {
		if role.Ratio > 0 && role.Source == i {
			ratios = append(ratios, role.Ratio)
		}
	}
	return ratios
}

// compressed is the bytes of the entries of a ratio and their index keys at a capacity in
// positions.
func (f footprint) compressed(ratio, capacity int) (n int64) {
	for _, r := range f.c.sources() {
		if r == ratio {
			n += cacheBytes(r, f.c.HeadDim, capacity) + cacheBytes(r, f.c.IndexDim, capacity)
		}
	}
	return n
}

// cacheBytes is the bytes of one cache of entries or keys.
func cacheBytes(ratio, dim, capacity int) int64 {
	return decoder.Pages(2 * int64((capacity+ratio-1)/ratio) * int64(dim))
}

// sequence is the bytes of a sequence that has held length positions, at most the context; 0
// of one that has held none.
func (f footprint) sequence(length int) int64 {
	if length <= 0 {
		return 0
	}
	capacity := decoder.Capacity(hyper.FirstCapacity, length, f.context)
	return f.raw + f.rings + f.compressed(1, capacity) + f.compressed(2, capacity)
}

// growth is the most bytes that a sequence holds in addition while one of its caches is
// copied to a larger one: the smaller one.
func (f footprint) growth() (most int64) {
	before := decoder.LastCapacity(hyper.FirstCapacity, f.context)
	for _, ratio := range f.c.sources() {
		most = max(most, cacheBytes(ratio, max(f.c.HeadDim, f.c.IndexDim), before))
	}
	return most
}

// checkpoint is the most bytes of a checkpoint: the rows before a position that the window,
// the compressors and the engram read there.
func (c *Config) checkpoint() int64 {
	n := int64(c.Layers) * 2 * int64(c.Window-1) * int64(c.HeadDim)
	for _, ratio := range c.sources() {
		n += 2 * 4 * int64(ratio-1) * int64(c.HeadDim)
	}
	if c.Engram.exists() {
		n += 4 * int64(c.Engram.Gram-1)
	}
	return decoder.Pages(n)
}
