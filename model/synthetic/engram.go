package synthetic

import (
	"fmt"
	"slices"
	"strings"

	"ringmaster/gguf"
)

// Engram is what a model of deepseek41 has beside the other fields of Config: layers that
// make compressed entries for those after them, indexers in two levels, tables of n-grams.
type Engram struct {
	// Sources are the layers that make compressed entries, Indexes those that choose among
	// them, and At those with a table. If Ratios is nil, all follow from the number of
	// layers: two of ratio 0, ratio 2 in the first half and ratio 1 in the second, a source
	// every SourceEvery layers of the first half, an index every IndexEvery of the second.
	Sources, Indexes, At    []int
	SourceEvery, IndexEvery int

	Kept, Size int // blocks of entries that the first index of ratio 1 keeps, and their entries

	Gram, Heads, Width int // the longest n-gram, hashes of each, values of a row
	LeastPrime         int // about the rows of a hash
	Table              gguf.Type
}

// v41Presets change flash.
var v41Presets = map[string]func(c *Config){
	"v41": func(c *Config) { c.Holes = true },
	"v41-tiny": func(c *Config) {
		c.Layers, c.Embd, c.Vocab, c.Heads, c.HeadDim, c.QRank, c.ORank, c.OGroups = 10, 256, 512, 4, 128, 128, 64, 2
		c.Experts, c.Used, c.FF, c.IndexHeads, c.TopK, c.Window = 9, 3, 256, 4, 16, 32
		c.Engram.SourceEvery, c.Engram.IndexEvery, c.Engram.Kept, c.Engram.Heads, c.Engram.LeastPrime = 2, 2, 8, 2, 500
	},
	"small-v41": func(c *Config) {
		c.Layers, c.Embd, c.Vocab, c.Heads, c.QRank, c.ORank, c.OGroups = 10, 1024, 4096, 16, 512, 256, 4
		c.Experts, c.FF, c.IndexHeads = 192, 256, 16
		c.Engram.SourceEvery, c.Engram.IndexEvery, c.Engram.LeastPrime = 2, 2, 20000
	},
	"bench-v41": func(c *Config) {
		c.Layers, c.Vocab, c.Experts = 6, 16384, 64
		c.Engram.SourceEvery, c.Engram.IndexEvery, c.Engram.LeastPrime = 2, 2, 50000
	},
}

// v41 makes flash the true shape of DeepSeek V4.1 Flash.
func v41(c *Config) {
	c.Arch, c.Layers, c.Embd, c.QRank, c.Experts, c.FF, c.HashLayers = archEngram, 40, 5120, 1280, 384, 2304, 0
	c.IndexHeads, c.RMSEps = 32, 1e-20
	c.Engram = Engram{SourceEvery: 6, IndexEvery: 4, Kept: 2048, Size: 8, Gram: 4, Heads: 8, Width: 256, LeastPrime: 16000000, Table: gguf.Q8_0}
}

// roles are the ratios and roles of the layers of a model of deepseek41.
func (c *Config) roles() (ratios []int, e Engram) {
	if e = c.Engram; c.Ratios != nil {
		return c.Ratios, e
	}
	half := max(2, c.Layers/2)
	e.Sources, e.Indexes, e.At = nil, nil, nil
	for i := range c.Layers {
		switch {
		case i < 2:
			ratios = append(ratios, 0)
		case i < half:
			ratios = append(ratios, 2)
			if (i-2)%max(1, e.SourceEvery) == 0 {
				e.Sources, e.Indexes = append(e.Sources, i), append(e.Indexes, i)
			}
		default:
			if ratios = append(ratios, 1); i == half {
				e.Sources = append(e.Sources, i)
			}
			if (i-half)%max(1, e.IndexEvery) == 0 {
				e.Indexes = append(e.Indexes, i)
			}
		}
	}
	if c.Layers > 1 {
		e.At = []int{1}
	}
	for i := half - 1; i > 1; i-- {
		if slices.Contains(e.Sources, i) {
			e.At = append(e.At, i)
			break
		}
	}
	return ratios, e
}

// checkEngram rejects shapes that no loader of deepseek41 could accept.
func (c *Config) checkEngram() error {
	ratios, e := c.roles()
	switch {
	case len(ratios) < c.Layers:
		return fmt.Errorf("%d ratios for %d layers", len(ratios), c.Layers)
	case c.QRank < 1 || c.Shared < 1:
		return fmt.Errorf("q_lora is %d and n_shared %d: want at least 1", c.QRank, c.Shared)
	case c.Heads%c.OGroups != 0:
		return fmt.Errorf("n_head %d is not a multiple of o_groups %d", c.Heads, c.OGroups)
	case c.RotDim > c.HeadDim || c.RotDim > c.IndexDim || c.RotDim%2 != 0:
		return fmt.Errorf("n_rot %d is odd or more than head_dim %d or idx_dim %d", c.RotDim, c.HeadDim, c.IndexDim)
	case (e.Kept-1)*e.Size+1 < c.TopK:
		return fmt.Errorf("cand_blocks %d of cand_size %d have no room for idx_topk %d", e.Kept, e.Size, c.TopK)
	case c.Block != "":
		return fmt.Errorf("files of %s have no block for multi-token prediction", c.Arch)
	case c.Alias:
		return fmt.Errorf("files of %s have no other tensor names", c.Arch)
	}
	for i, r := range ratios {
		if r < 0 || r > 2 {
			return fmt.Errorf("ratio %d of layer %d: want 0, 1 or 2", r, i)
		}
	}
	return nil
}

// engramKeys is the rest of the metadata of deepseek41, as llama.cpp's converter writes it,
// with the candidates' keys of another.
func (c *Config) engramKeys(tokens []string) []pair {
	ratios, e := c.roles()
	a := c.Arch + "."
	clamps := make([]float32, c.Layers)
	for i := range clamps {
		clamps[i] = float32(c.Clamp)
	}
	int32s := func(all []int) []int32 {
		out := make([]int32, len(all))
		for i, v := range all {
			out[i] = int32(v)
		}
		return out
	}
	pairs := []pair{
		{a + "attention.head_count", uint32(c.Heads)},
		{a + "attention.head_count_kv", uint32(1)},
		{a + "attention.key_length", uint32(c.HeadDim)},
		{a + "attention.value_length", uint32(c.HeadDim)},
		{a + "attention.layer_norm_rms_epsilon", float32(c.RMSEps)},
		{a + "attention.q_lora_rank", uint32(c.QRank)},
		{a + "attention.output_lora_rank", uint32(c.ORank)},
		{a + "attention.output_group_count", uint32(c.OGroups)},
		{a + "attention.sliding_window", uint32(c.Window)},
		{a + "attention.compress_ratios", append(int32s(ratios), 0, 0, 0)}, // with those of draft layers
		{a + "attention.compress_rope_freq_base", float32(c.CompressRopeBase)},
		{a + "attention.indexer.head_count", uint32(c.IndexHeads)},
		{a + "attention.indexer.key_length", uint32(c.IndexDim)},
		{a + "attention.indexer.top_k", uint32(c.TopK)},
		{a + "attention.candidate_topk_blocks", uint32(e.Kept)},
		{a + "attention.candidate_block_size", uint32(e.Size)},
		{a + "rope.dimension_count", uint32(c.RotDim)},
		{a + "rope.freq_base", float32(c.RopeBase)},
		{a + "rope.scaling.type", "yarn"},
		{a + "rope.scaling.factor", float32(c.YaRNFactor)},
		{a + "rope.scaling.original_context_length", uint32(c.YaRNContext)},
		{a + "rope.scaling.yarn_beta_fast", float32(32)},
		{a + "rope.scaling.yarn_beta_slow", float32(1)},
		{a + "hyper_connection.count", uint32(c.Streams)},
		{a + "hyper_connection.sinkhorn_iterations", uint32(c.Sinkhorn)},
		{a + "hyper_connection.epsilon", float32(c.HyperEps)},
		{a + "hash_layer_count", uint32(0)},
		{a + "expert_count", uint32(c.Experts)},
		{a + "expert_used_count", uint32(c.Used)},
		{a + "expert_shared_count", uint32(c.Shared)},
		{a + "expert_feed_forward_length", uint32(c.FF)},
		{a + "expert_gating_func", uint32(4)},
		{a + "expert_weights_norm", true},
		{a + "expert_weights_scale", float32(c.WeightsScale)},
		{a + "swiglu_clamp_exp", clamps},
		{a + "swiglu_clamp_shexp", clamps},
		{a + "nextn_predict_layers", uint32(0)},
	}
	if len(e.At) == 0 {
		return pairs
	}
	primes, offsets, _ := e.primes()
	folded := foldTokens(tokens)
	multipliers, s := make([]uint64, len(e.At)*e.Gram), newSource(c.Seed, "engram.multipliers")
	bound := uint64(1<<63-1) / uint64(slices.Max(folded)+1) / 2
	for i := range multipliers {
		multipliers[i] = 2*(s.Uint64()%bound) + 1
	}
	return append(pairs,
		pair{a + "engram.layer_ids", int32s(e.At)},
		pair{a + "engram.head_count", uint32(e.Heads)},
		pair{a + "engram.key_length", uint32(e.Width)},
		pair{a + "engram.max_ngram_size", uint32(e.Gram)},
		pair{a + "engram.multipliers", multipliers},
		pair{a + "engram.primes", primes},
		pair{a + "engram.offsets", offsets},
		pair{a + "engram.token_map", folded},
		pair{a + "engram.pad_id", uint32(folded[2])},
	)
}

// primes are the rows of each hash of all layers, the smallest primes that are not used yet,
// the rows before those of the hash, and the rows of each layer's table.
func (e *Engram) primes() (primes, offsets []uint64, rows []int) {
	used := map[int]bool{}
	for range e.At {
		at := 0
		for range e.Gram - 1 {
			p := e.LeastPrime - 1
			for range e.Heads {
				for p++; used[p] || !isPrime(p); p++ {
				}
				used[p] = true
				primes, offsets = append(primes, uint64(p)), append(offsets, uint64(at))
				at += p
			}
		}
		rows = append(rows, at)
	}
	return primes, offsets, rows
}

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// foldTokens gives tokens that differ in case only one id, in order of first appearance.
func foldTokens(tokens []string) []int32 {
	ids, folded := map[string]int32{}, make([]int32, len(tokens))
	for i, text := range tokens {
		lower := strings.ToLower(text)
		id, seen := ids[lower]
		if !seen {
			id = int32(len(ids))
			ids[lower] = id
		}
		folded[i] = id
	}
	return folded
}

// engramTensors adds all tensors of a model of deepseek41.
func (m *maker) engramTensors(small gguf.Type) {
	c := m.c
	E, hc := c.Embd, c.Streams
	ratios, e := c.roles()
	_, _, rows := e.primes()
	m.matrix("token_embd.weight", c.Types.Embd, 1, E, c.Vocab)
	m.matrix("output.weight", c.Types.Output, 3*inv(E), E, c.Vocab)
	m.vector("output_norm.weight", gguf.F32, normal(1, 0.1), E)
	for i := range c.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		m.window(p, small)
		if slices.Contains(e.Sources, i) {
			m.entries(p, ratios[i])
		}
		if slices.Contains(e.Indexes, i) {
			m.matrix(p+"indexer.attn_q_b.weight", c.Types.Aux, inv(c.QRank), c.QRank, c.IndexHeads*c.IndexDim)
			m.matrix(p+"indexer.proj.weight", c.Types.Aux, inv(E), E, c.IndexHeads)
		}
		if slices.Contains(e.At, i) {
			in := (e.Gram - 1) * e.Heads * e.Width
			m.matrix(p+"engram_wkv.weight", c.Types.Aux, 0.7*inv(in), in, (hc+1)*E)
			m.vector(p+"engram_q.weight", gguf.F32, normal(1, 0.1), E, hc)
			m.vector(p+"engram_k.weight", gguf.F32, normal(1, 0.1), E, hc)
		}
		m.mixture(i, p)
		m.vector(p+"exp_probs_b_vl.bias", gguf.F32, normal(0, 0.1), c.Experts)
	}
	for n, i := range e.At { // last, as in files whose tables stay on disk
		m.matrix(fmt.Sprintf("blk.%d.engram_embd.weight", i), e.Table, 1, e.Width, rows[n])
	}
}

// entries adds the tensors that make compressed entries and their index keys.
func (m *maker) entries(p string, ratio int) {
	c := m.c
	m.matrix(p+"attn_compressor_kv.weight", c.Types.Aux, inv(c.Embd), c.Embd, c.HeadDim)
	if ratio > 1 {
		m.matrix(p+"attn_compressor_gate.weight", c.Types.Aux, 1.5*inv(c.Embd), c.Embd, c.HeadDim)
	}
	m.vector(p+"attn_compressor_norm.weight", gguf.F32, normal(1.3, 0.13), c.HeadDim)
	m.matrix(p+"indexer.attn_k.weight", c.Types.Aux, inv(c.HeadDim), c.HeadDim, c.IndexDim)
	m.vector(p+"indexer.k_norm.weight", gguf.F32, normal(1, 0.1), c.IndexDim)
}
