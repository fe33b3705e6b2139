package deepseek4

import (
	"fmt"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

// Config holds the hyper-parameters of a deepseek4 file. Every number comes
// from the file's metadata (keys "deepseek4.*").
type Config struct {
	Name    string
	Layers  int // main layers, without the blocks for multi-token prediction
	Context int // most positions of a sequence
	Vocab   int // V

	hyper.Shape

	// Ratios [Layers] are the compression ratios: 0 (sliding window only), 4
	// (overlapping blocks, with an indexer) or 128.
	Ratios []int

	IndexHeads int // query heads of the indexer
	IndexDim   int // width of an indexer head; a power of two
	IndexTopK  int // compressed entries of ratio 4 that attention reads

	Experts      int       // E, routed
	Used         int       // k, routed experts of a token
	ExpertFF     int       // F, width of an expert
	SharedFF     int       // width of the shared expert
	HashLayers   int       // the first layers, which choose experts by token id
	WeightsNorm  bool      // divide a token's router weights by their sum
	WeightsScale float32   // factor of the router weights
	ClampRouted  []float32 // [Layers] SwiGLU clamp of routed experts; 0 is none
	ClampShared  []float32 // [Layers] SwiGLU clamp of the shared expert; 0 is none

	RopeBase         float64      // layers of ratio 0
	CompressRopeBase float64      // layers of ratio 4 and 128
	YaRN             decoder.YaRN // of layers of ratio 4 and 128

	FileLayers int // block_count of the file

	unreadKeys  []string // of the file
	trunkRemark string   // decoder.Keys.SaysTrunk
	clamped     bool     // the file says the limit of SwiGLU
}

// known are the keys that this package reads, beside those of every architecture.
var known = strings.Fields(`
	attention.head_count attention.head_count_kv attention.key_length attention.value_length attention.layer_norm_rms_epsilon
	attention.q_lora_rank attention.output_lora_rank attention.output_group_count attention.sliding_window
	attention.compress_ratios attention.compress_rope_freq_base attention.indexer.head_count attention.indexer.key_length attention.indexer.top_k
	expert_count expert_used_count expert_shared_count expert_feed_forward_length expert_gating_func expert_weights_norm
	expert_weights_scale expert_group_count expert_group_used_count swiglu_clamp_exp swiglu_clamp_shexp hash_layer_count
	rope.dimension_count rope.freq_base rope.freq_base_swa rope.scaling.type rope.scaling.factor rope.scaling.original_context_length
	rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow hyper_connection.count hyper_connection.sinkhorn_iterations hyper_connection.epsilon`)

const arch = "deepseek4"

// ReadConfig reads the hyper-parameters and checks that they fit together.
// Its error names the file and each key that is missing or out of range.
func ReadConfig(f *gguf.File) (Config, error) {
	if a := f.Architecture(); a != arch {
		return Config{}, fmt.Errorf("%s: architecture is %q, expected %q", f.Path(), a, arch)
	}
	const big = 1 << 24
	r := decoder.NewKeys(f, arch)
	var c Config
	c.Name = decoder.Name(f)
	c.FileLayers = r.Number("block_count", 1, 4096)
	c.Layers = r.Trunk(c.FileLayers)
	c.trunkRemark = r.SaysTrunk(c.FileLayers)
	c.Embd = r.Number("embedding_length", 1, big)
	c.Context = r.Number("context_length", 1, 1<<30)
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	c.Vocab = r.Optional("vocab_size", len(tokens), 1, 1<<30)

	c.Heads = r.Number("attention.head_count", 1, 65536)
	if kv := r.Optional("attention.head_count_kv", 1, 1, 65536); kv != 1 {
		r.Fail("key %q is %d; this architecture has one key/value head", arch+".attention.head_count_kv", kv)
	}
	c.HeadDim = r.Number("attention.key_length", 2, 65536)
	if v := r.Optional("attention.value_length", c.HeadDim, 1, 65536); v != c.HeadDim {
		r.Fail("attention.value_length is %d and key_length %d; keys are values here", v, c.HeadDim)
	}
	c.RotDim = r.Number("rope.dimension_count", 2, 65536)
	c.QRank = r.Number("attention.q_lora_rank", 1, big)
	c.ORank = r.Number("attention.output_lora_rank", 1, big)
	c.OGroups = r.Number("attention.output_group_count", 1, kernels.MostExactTerms)
	c.Window = r.Number("attention.sliding_window", 1, big)

	c.Experts = r.Number("expert_count", 1, 65536)
	c.Used = r.Number("expert_used_count", 1, decoder.MostUsed)
	c.ExpertFF = r.Number("expert_feed_forward_length", 1, big)
	c.SharedFF = c.ExpertFF * r.Optional("expert_shared_count", 1, 1, 64)
	c.HashLayers = r.Optional("hash_layer_count", 0, 0, 4096)
	c.WeightsScale = float32(r.Float("expert_weights_scale"))
	c.WeightsNorm = r.Bool("expert_weights_norm", true)
	hyper.CheckGating(r, "expert_gating_func")
	for _, key := range []string{"expert_group_count", "expert_group_used_count"} {
		if n := r.Optional(key, 0, 0, 65536); n > 1 {
			r.Fail("key %q is %d; group-limited routing is not part of this architecture", arch+"."+key, n)
		}
	}
	c.ClampRouted = hyper.PerLayer(r, "swiglu_clamp_exp", c.Layers, make([]float32, c.Layers))
	c.ClampShared = hyper.PerLayer(r, "swiglu_clamp_shexp", c.Layers, c.ClampRouted)

	c.RopeBase = r.Float("rope.freq_base")
	c.readRatios(r)
	if c.compressed() {
		c.CompressRopeBase = r.Float("attention.compress_rope_freq_base", "rope.freq_base_swa")
		c.YaRN = hyper.ReadYaRN(r)
	}
	if c.indexed() {
		c.IndexHeads = r.Number("attention.indexer.head_count", 1, 65536)
		c.IndexDim = r.Number("attention.indexer.key_length", 2, 65536)
		c.IndexTopK = r.Number("attention.indexer.top_k", 1, 1<<20)
	}
	c.RMSEps = float32(r.Float("attention.layer_norm_rms_epsilon"))
	c.Streams = r.Number("hyper_connection.count", 1, hyper.MaxStreams)
	c.Sinkhorn = r.Number("hyper_connection.sinkhorn_iterations", 1, 10000)
	c.HCEps = float32(r.Float("hyper_connection.epsilon"))
	c.clamped = r.Has("swiglu_clamp_exp")
	c.unreadKeys = r.RefuseUnknown(known)
	c.check(r)
	return c, r.Err()
}

// readRatios reads the compression ratios. The array may have more values than
// there are layers; without it the ratio follows from the tensors of a layer.
func (c *Config) readRatios(r *decoder.Keys) {
	key := arch + ".attention.compress_ratios"
	c.Ratios = make([]int, c.Layers)
	if !r.File.Has(key) {
		for i := range c.Ratios {
			switch {
			case hasAny(r.File, i, "indexer.proj.weight"):
				c.Ratios[i] = 4
			case hasAny(r.File, i, "attn_compressor_kv.weight", "attn_compress_kv.weight"):
				c.Ratios[i] = 128
			}
		}
		return
	}
	vs, ok := r.File.Ints(key)
	if !ok || len(vs) < c.Layers {
		r.Fail("key %q has %d values for %d layers", key, len(vs), c.Layers)
		return
	}
	for i := range c.Ratios {
		if v := vs[i]; v != 0 && v != 4 && v != 128 {
			r.Fail("key %q: layer %d has ratio %d; expected 0, 4 or 128", key, i, v)
			continue
		}
		c.Ratios[i] = int(vs[i])
	}
}

func hasAny(f *gguf.File, layer int, names ...string) bool {
	for _, n := range names {
		if _, ok := f.Tensor(fmt.Sprintf("blk.%d.%s", layer, n)); ok {
			return true
		}
	}
	return false
}

// compressed reports whether any layer has a compressor.
func (c *Config) compressed() bool {
	for _, r := range c.Ratios {
		if r > 0 {
			return true
		}
	}
	return false
}

// indexed reports whether any layer has an indexer.
func (c *Config) indexed() bool {
	for _, r := range c.Ratios {
		if r == 4 {
			return true
		}
	}
	return false
}

// check reports numbers that do not fit together.
func (c *Config) check(r *decoder.Keys) {
	c.Shape.Check(r)
	if c.Used > c.Experts {
		r.Fail("a token uses %d experts of only %d", c.Used, c.Experts)
	}
	if c.indexed() {
		if c.IndexDim&(c.IndexDim-1) != 0 {
			r.Fail("attention.indexer.key_length is %d; its Hadamard transform needs a power of two", c.IndexDim)
		}
		if c.RotDim > c.IndexDim {
			r.Fail("rope.dimension_count is %d, more than the indexer's %d", c.RotDim, c.IndexDim)
		}
	}
}
