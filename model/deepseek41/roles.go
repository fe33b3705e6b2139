package deepseek41

import (
	"fmt"
	"slices"
)

// Role is what a layer does beside attention over its window and its experts.
type Role struct {
	// Ratio is how many positions a compressed entry stands for: 1 or 2, or 0 in a layer
	// that reads none.
	Ratio int
	// Source is the layer that makes the compressed entries that this one reads, and their
	// index keys; -1 for none. Index is the layer that chooses among them. Both may be this
	// layer itself.
	Source, Index int
	Engram        int // number of the engram layer that this is; -1 for none
}

// hasTensor reports whether the file has a tensor of a layer.
func (r *keys) hasTensor(layer int, name string) bool {
	_, ok := r.File.Tensor(fmt.Sprintf("blk.%d.%s", layer, name))
	return ok
}

// readRoles reads the ratios, and the roles of the layers from their tensors. A layer reads
// the entries of the nearest source before it or itself.
func (c *Config) readRoles(r *keys) {
	c.Roles = make([]Role, c.Layers)
	key := r.of("attention.compress_ratios", "compress_ratios")
	ratios, ok := r.File.Ints(r.Name(key))
	if !ok || len(ratios) < c.Layers { // there may be more, of draft layers
		r.Fail("key %q is missing or has %d values for %d layers", r.Name(key), len(ratios), c.Layers)
		ratios = make([]int64, c.Layers)
	}
	var sources, indexes, engrams []int
	source, index := -1, -1
	for i := range c.Roles {
		role := &c.Roles[i]
		if v := ratios[i]; v < 0 || v > 2 {
			r.Fail("key %q: layer %d has ratio %d; expected 0, 1 or 2", r.Name(key), i, v)
		} else {
			role.Ratio = int(v)
		}
		isSource, isIndex := r.hasTensor(i, "attn_compressor_kv.weight"), r.hasTensor(i, "indexer.attn_q_b.weight")
		if isSource {
			source, sources = i, append(sources, i)
			c.checkSource(r, i, role.Ratio)
		} else if r.hasTensor(i, "indexer.attn_k.weight") {
			r.Fail("layer %d has index keys (indexer.attn_k) but no compressor (attn_compressor_kv)", i)
		}
		if isIndex {
			index, indexes = i, append(indexes, i)
		}
		role.Source, role.Index, role.Engram = -1, -1, -1
		if r.hasTensor(i, "engram_embd.weight") {
			role.Engram, engrams = len(engrams), append(engrams, i)
		}
		if role.Ratio == 0 {
			if isSource || isIndex {
				r.Fail("layer %d has a compressor or an indexer, but its ratio is 0", i)
			}
			continue
		}
		role.Source, role.Index = source, index
		switch {
		case source < 0:
			r.Fail("layer %d has ratio %d, but neither it nor a layer before it has a compressor (attn_compressor_kv)", i, role.Ratio)
		case index < source:
			r.Fail("layer %d reads the compressed entries of layer %d, but no layer from there on has an indexer (indexer.attn_q_b)", i, source)
		case int(ratios[source]) != role.Ratio:
			r.Fail("layer %d has ratio %d, but layer %d, which makes its compressed entries, has ratio %d", i, role.Ratio, source, ratios[source])
		}
	}
	r.agree(sources, "attn_compressor_kv", "attention.kv_source_layer_ids", "kv_source_layer_ids")
	r.agree(indexes, "indexer.attn_q_b", "attention.index_source_layer_ids", "index_source_layer_ids")
	r.agree(engrams, "engram_embd", "engram.layer_ids", "engram.layer_ids")
	c.Engram.Layers = engrams
}

// checkSource reports a compressor that does not fit the ratio of its layer.
func (c *Config) checkSource(r *keys, layer, ratio int) {
	if gate := r.hasTensor(layer, "attn_compressor_gate.weight"); ratio != 0 && gate != (ratio == 2) {
		r.Fail("layer %d has ratio %d: its compressor must have a gate (attn_compressor_gate) if that is 2, and only then", layer, ratio)
	}
	if !r.hasTensor(layer, "indexer.attn_k.weight") {
		r.Fail("layer %d has a compressor (attn_compressor_kv) but no index keys (indexer.attn_k)", layer)
	}
}

// agree reports a key that lists other layers than those that have a tensor. Not all files
// have the keys.
func (r *keys) agree(layers []int, tensor, usual, ds4 string) {
	key := r.of(usual, ds4)
	if !r.Has(key) {
		return
	}
	listed, ok := r.File.Ints(r.Name(key))
	if !ok || !slices.EqualFunc(listed, layers, func(a int64, b int) bool { return a == int64(b) }) {
		r.Fail("key %q lists layers %v, but the tensor %s is in layers %v", r.Name(key), listed, tensor, layers)
	}
}

// readCandidates reads which layer keeps blocks of entries: by the key, or the first that
// chooses among entries of ratio 1. The numbers are those of the released model by default.
func (c *Config) readCandidates(r *keys) {
	first := -1
	for i, role := range c.Roles {
		if first < 0 && role.Ratio == 1 && role.Index == i {
			first = i
		}
	}
	source := r.of(r.first("attention.candidate_source_layer_id", "attention.candidate_source_layer"), "candidate_source_layer_id")
	kept := r.of(r.first("attention.candidate_topk_blocks", "attention.candidate_top_k_blocks"), "candidate_topk_blocks")
	size := r.of("attention.candidate_block_size", "candidate_block_size")
	c.Candidates = first
	if r.Has(source) {
		c.Candidates = r.Number(source, 0, max(0, c.Layers-1))
	}
	if c.Candidates < 0 {
		return
	}
	c.BlocksKept = r.Optional(kept, 2048, 1, 1<<20)
	c.BlockSize = r.Optional(size, 8, 1, 1<<20)
	if role := c.Roles[c.Candidates]; role.Index != c.Candidates {
		r.Fail("key %q names layer %d, which has no indexer", r.Name(source), c.Candidates)
		return
	}
	if (c.BlocksKept-1)*c.BlockSize+1 < c.IndexTopK {
		r.Fail("keys %q and %q: %d blocks of %d entries have no room for the %d entries that attention reads",
			r.Name(kept), r.Name(size), c.BlocksKept, c.BlockSize, c.IndexTopK)
	}
	for i := c.Candidates + 1; i < c.Layers; i++ {
		if role := c.Roles[i]; role.Index == i && role.Source != c.Roles[c.Candidates].Source {
			r.Fail("layer %d would choose within the blocks of layer %d, but they read entries of different layers", i, c.Candidates)
		}
	}
}
