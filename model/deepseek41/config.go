package deepseek41

import (
	"fmt"
	"math"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

const arch = "deepseek41"

// Config holds the hyper-parameters of a deepseek41 file. Every number comes from the file's
// metadata, every role of a layer from its tensors.
type Config struct {
	Name    string
	Layers  int // main layers, without the blocks for multi-token prediction
	Context int // most positions of a sequence
	Vocab   int // V

	hyper.Shape

	Roles []Role // [Layers]

	IndexHeads int // query heads of the indexer
	IndexDim   int // width of an indexer head
	IndexTopK  int // compressed entries that attention reads

	// Candidates is the layer that keeps blocks of entries, among which the later index
	// sources choose; -1 for none.
	Candidates int
	BlocksKept int // that many
	BlockSize  int // entries

	Experts      int       // E, routed
	Used         int       // k, routed experts of a token
	ExpertFF     int       // F, width of an expert
	SharedFF     int       // width of the shared expert
	WeightsNorm  bool      // divide a token's router weights by their sum
	WeightsScale float32   // factor of the router weights
	ClampRouted  []float32 // [Layers] SwiGLU clamp of routed experts; 0 is none
	ClampShared  []float32 // [Layers] SwiGLU clamp of the shared expert; 0 is none

	RopeBase         float64      // layers of ratio 0
	CompressRopeBase float64      // layers of ratio 1 and 2
	YaRN             decoder.YaRN // of layers of ratio 1 and 2

	Engram Engram

	unreadKeys  []string // of the file
	trunkRemark string   // decoder.Keys.SaysTrunk
}

// keys reads the keys of either family of files: those of llama.cpp's converter, with the
// usual names, and those of ds4, which have the names of the model's config.json.
type keys struct {
	*decoder.Keys
	ds4 bool
}

// of is the name of a key that the families name differently.
func (r *keys) of(usual, ds4 string) string {
	if r.ds4 {
		return ds4
	}
	return usual
}

// first is the first of the keys that the file has, or the first of all.
func (r *keys) first(names ...string) string {
	for _, name := range names {
		if r.Has(name) {
			return name
		}
	}
	return names[0]
}

// whole is a whole number that a file may have as a real one.
func (r *keys) whole(key string, lo, hi int) int {
	v := r.Float(key)
	if v != math.Trunc(v) || v < float64(lo) || v > float64(hi) {
		r.Fail("key %q is %v; expected a whole number from %d to %d", r.Name(key), v, lo, hi)
		return lo
	}
	return int(v)
}

// known are the keys that this package reads, beside those of every architecture: the usual
// ones, other names for some, and those of ds4.
var known = strings.Fields(`
	attention.head_count attention.head_count_kv attention.key_length attention.value_length attention.layer_norm_rms_epsilon
	attention.q_lora_rank attention.output_lora_rank attention.output_group_count attention.sliding_window
	attention.compress_ratios attention.compress_rope_freq_base attention.indexer.head_count attention.indexer.key_length attention.indexer.top_k
	attention.kv_source_layer_ids attention.index_source_layer_ids attention.candidate_source_layer_id attention.candidate_source_layer
	attention.candidate_topk_blocks attention.candidate_top_k_blocks attention.candidate_block_size
	expert_count expert_used_count expert_shared_count expert_feed_forward_length expert_gating_func expert_weights_norm
	expert_weights_scale swiglu_clamp_exp swiglu_clamp_shexp hash_layer_count trunk_block_count
	rope.dimension_count rope.freq_base rope.scaling.type rope.scaling.factor rope.scaling.original_context_length
	rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow hyper_connection.count hyper_connection.sinkhorn_iterations hyper_connection.epsilon
	engram.layer_ids engram.head_count engram.n_heads engram.key_length engram.head_dim engram.max_ngram_size engram.multipliers
	engram.hash_multipliers engram.primes engram.offsets engram.token_map engram.pad_id engram.pad_token_id engram.num_embeddings
	engram.compressed_vocab_size engram.rows engram.encoding

	num_hidden_layers hidden_size max_position_embeddings num_attention_heads num_key_value_heads head_dim qk_rope_head_dim q_lora_rank
	o_lora_rank o_groups n_routed_experts num_experts_per_tok n_shared_experts moe_intermediate_size scoring_func topk_method hidden_act
	norm_topk_prob routed_scaling_factor swiglu_limit sliding_window compress_ratios kv_source_layer_ids index_source_layer_ids
	candidate_source_layer_id candidate_topk_blocks candidate_block_size index_n_heads index_head_dim index_topk rope_theta compress_rope_theta
	rope_scaling.factor rope_scaling.beta_fast rope_scaling.beta_slow rope_scaling.original_max_position_embeddings rms_norm_eps
	hc_mult hc_sinkhorn_iters hc_eps config`)

// ReadConfig reads the hyper-parameters and checks that they fit together. Its error names
// the file and each key that is missing or out of range.
func ReadConfig(f *gguf.File) (Config, error) {
	if a := f.Architecture(); a != arch {
		return Config{}, fmt.Errorf("%s: architecture is %q, expected %q", f.Path(), a, arch)
	}
	const big = 1 << 24
	r := &keys{Keys: decoder.NewKeys(f, arch)}
	r.ds4 = r.Has("hidden_size")
	if f.Has("deepseek4.engram.layer_ids") {
		r.Fail("key %q has the prefix of another architecture: early conversions (before 12 September 2026) wrote it and lack the constants of the hash; take a later download", "deepseek4.engram.layer_ids")
		return Config{}, r.Err()
	}
	c := Config{Candidates: -1}
	c.Name = decoder.Name(f)
	blocks := r.Number(r.of("block_count", "num_hidden_layers"), 1, 4096)
	c.Layers = r.Trunk(blocks)
	if r.Has("trunk_block_count") {
		c.Layers = min(c.Layers, r.Number("trunk_block_count", 1, blocks))
	}
	c.trunkRemark = r.SaysTrunk(blocks)
	c.Embd = r.Number(r.of("embedding_length", "hidden_size"), 1, big)
	c.Context = r.Number(r.of("context_length", "max_position_embeddings"), 1, 1<<30)
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	c.Vocab = r.Optional("vocab_size", len(tokens), 1, 1<<30)

	c.Heads = r.Number(r.of("attention.head_count", "num_attention_heads"), 1, 65536)
	if key := r.of("attention.head_count_kv", "num_key_value_heads"); r.Optional(key, 1, 1, 65536) != 1 {
		r.Fail("key %q is not 1; this architecture has one key/value head", r.Name(key))
	}
	c.HeadDim = r.Number(r.of("attention.key_length", "head_dim"), 2, 65536)
	if v := r.Optional("attention.value_length", c.HeadDim, 1, 65536); v != c.HeadDim {
		r.Fail("attention.value_length is %d and key_length %d; keys are values here", v, c.HeadDim)
	}
	c.RotDim = r.Number(r.of("rope.dimension_count", "qk_rope_head_dim"), 2, 65536)
	c.QRank = r.Number(r.of("attention.q_lora_rank", "q_lora_rank"), 1, big)
	c.ORank = r.Number(r.of("attention.output_lora_rank", "o_lora_rank"), 1, big)
	c.OGroups = r.Number(r.of("attention.output_group_count", "o_groups"), 1, kernels.MostExactTerms)
	c.Window = r.Number(r.of("attention.sliding_window", "sliding_window"), 1, big)
	c.RMSEps = float32(r.Float(r.of("attention.layer_norm_rms_epsilon", "rms_norm_eps")))
	c.Streams = r.Number(r.of("hyper_connection.count", "hc_mult"), 1, hyper.MaxStreams)
	c.Sinkhorn = r.Number(r.of("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"), 1, 10000)
	c.HCEps = float32(r.Float(r.of("hyper_connection.epsilon", "hc_eps")))

	c.readExperts(r)
	c.RopeBase = r.Float(r.of("rope.freq_base", "rope_theta"))
	c.readRoles(r)
	if c.compressed() {
		c.CompressRopeBase = r.Float(r.of("attention.compress_rope_freq_base", "compress_rope_theta"))
		c.readYaRN(r)
		c.IndexHeads = r.Number(r.of("attention.indexer.head_count", "index_n_heads"), 1, 65536)
		c.IndexDim = r.Number(r.of("attention.indexer.key_length", "index_head_dim"), 2, 65536)
		c.IndexTopK = r.Number(r.of("attention.indexer.top_k", "index_topk"), 1, 1<<20)
		c.readCandidates(r)
		if c.RotDim > c.IndexDim {
			r.Fail("rope.dimension_count is %d, more than the indexer's %d", c.RotDim, c.IndexDim)
		}
	}
	c.readEngram(r)
	c.unreadKeys = r.RefuseUnknown(known)
	c.Shape.Check(r.Keys)
	return c, r.Err()
}

func (c *Config) readExperts(r *keys) {
	c.Experts = r.Number(r.of("expert_count", "n_routed_experts"), 1, 65536)
	c.Used = r.Number(r.of("expert_used_count", "num_experts_per_tok"), 1, decoder.MostUsed)
	c.ExpertFF = r.Number(r.of("expert_feed_forward_length", "moe_intermediate_size"), 1, 1<<24)
	c.SharedFF = c.ExpertFF * r.Optional(r.of("expert_shared_count", "n_shared_experts"), 1, 1, 64)
	c.WeightsScale = float32(r.Float(r.of("expert_weights_scale", "routed_scaling_factor")))
	c.WeightsNorm = r.Bool(r.of("expert_weights_norm", "norm_topk_prob"), true)
	hyper.CheckGating(r.Keys, r.of("expert_gating_func", "scoring_func"))
	if c.Used > c.Experts {
		r.Fail("a token uses %d experts of only %d", c.Used, c.Experts)
	}
	if r.ds4 {
		for key, want := range map[string]string{"topk_method": "noaux_tc", "hidden_act": "silu"} {
			if s, ok := r.File.String(r.Name(key)); r.Has(key) && (!ok || s != want) {
				r.Fail("key %q is not %q, the only one of this architecture", r.Name(key), want)
			}
		}
		c.ClampRouted = hyper.PerLayer(r.Keys, "swiglu_limit", c.Layers, nil)
		c.ClampShared = c.ClampRouted
		return
	}
	if n := r.Optional("hash_layer_count", 0, 0, 4096); n != 0 {
		r.Fail("key %q is %d; layers of this architecture do not choose experts by token id", r.Name("hash_layer_count"), n)
	}
	c.ClampRouted = hyper.PerLayer(r.Keys, "swiglu_clamp_exp", c.Layers, nil)
	c.ClampShared = hyper.PerLayer(r.Keys, "swiglu_clamp_shexp", c.Layers, c.ClampRouted)
}

// readYaRN reads the YaRN of compressed layers. Files of ds4 have no type, because it is
// always YaRN.
func (c *Config) readYaRN(r *keys) {
	if !r.ds4 {
		c.YaRN = hyper.ReadYaRN(r.Keys)
		return
	}
	c.YaRN = decoder.YaRN{
		Factor:   r.Float("rope_scaling.factor"),
		Original: r.whole("rope_scaling.original_max_position_embeddings", 1, 1<<30),
		BetaFast: r.Float("rope_scaling.beta_fast"),
		BetaSlow: r.Float("rope_scaling.beta_slow"),
	}
	c.YaRN.Check(r.Keys)
}

// compressed reports whether any layer reads compressed entries.
func (c *Config) compressed() bool {
	for _, role := range c.Roles {
		if role.Ratio > 0 {
			return true
		}
	}
	return false
}
