package deepseek2

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
)

// Config holds the hyper-parameters of a file. Every number comes from the file's
// metadata (keys that begin with the architecture) or, where files differ in what they
// say, from its tensors.
type Config struct {
	Arch    string // deepseek2, deepseek32 or glm-dsa
	Name    string
	Layers  int // main layers, without the blocks for multi-token prediction
	Embd    int // D, hidden size
	Context int // most positions of a sequence
	Vocab   int // V

	Heads  int  // H, query heads; all share one latent row for key and value
	QRank  int  // low rank of the query projection; 0: the projection is one matrix
	KVRank int  // R, width of the latent part of a cached row
	RotDim int  // rotated elements: the tail of a cached row and of a query
	Nope   int  // elements of a query head that are not rotated
	Value  int  // width of a head's output
	Merged bool // attn_kv_b holds what attn_k_b and attn_v_b hold otherwise

	Index Index // which positions attention reads

	Dense   int // leading layers without experts
	DenseFF int // width of their feed-forward network

	Experts      int // E, routed
	Used         int // k, routed experts of a token
	ExpertFF     int // F, width of an expert
	SharedFF     int // width of all shared experts together, which are one network; 0 for none
	Score        kernels.Score
	Groups       int                // of experts; 1 for none
	GroupsUsed   int                // groups that a token may choose from
	GroupScore   kernels.GroupScore // what stands for a group
	WeightsNorm  bool               // divide a token's router weights by their sum
	WeightsScale float32            // factor of the router weights

	RopeBase float64
	YaRN     decoder.YaRN
	Betas    bool    // the file says YaRN's betas; else they are 32 and 1
	Turn     float32 // magnitude of the rotation's sine and cosine
	Scale    float64 // of the products of query and key

	RMSEps     float32
	FileLayers int // block_count of the file

	supposed    []string // keys that the file lacks and that change the layers, with what stands for them
	unreadKeys  []string // of the file
	trunkRemark string   // decoder.Keys.SaysTrunk
	tied        bool     // the output is the embedding
}

// The architectures of this package. The last two have an indexer.
const (
	archDense = "deepseek2"
	archV32   = "deepseek32"
	archGLM   = "glm-dsa"
)

// known are the keys that this package reads, beside those of every architecture.
var known = strings.Fields(`
	attention.head_count attention.head_count_kv attention.layer_norm_rms_epsilon attention.q_lora_rank attention.kv_lora_rank
	attention.key_length attention.value_length attention.key_length_mla attention.value_length_mla
	expert_count expert_used_count expert_shared_count expert_feed_forward_length expert_gating_func expert_weights_norm
	expert_weights_scale expert_group_count expert_group_used_count
	rope.dimension_count rope.freq_base rope.scaling.type rope.scaling.factor rope.scaling.original_context_length
	rope.scaling.yarn_log_multiplier rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow`)

// ReadConfig reads the hyper-parameters and checks that they fit together.
// Its error names the file and each key that is missing or out of range, or that this
// program does not know and that may change what the layers compute.
func ReadConfig(f *gguf.File) (Config, error) {
	c := Config{Arch: f.Architecture()}
	if c.Arch != archDense && c.Arch != archV32 && c.Arch != archGLM {
		return Config{}, fmt.Errorf("%s: architecture is %q, expected %s, %s or %s", f.Path(), c.Arch, archDense, archV32, archGLM)
	}
	const big = 1 << 24
	r := decoder.NewKeys(f, c.Arch)
	c.Name = decoder.Name(f)
	c.FileLayers = r.Number("block_count", 1, 4096)
	c.Layers = r.Trunk(c.FileLayers)
	c.trunkRemark = r.SaysTrunk(c.FileLayers)
	c.Embd = r.Number("embedding_length", 1, big)
	c.Context = r.Number("context_length", 1, 1<<30)
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	c.Vocab = r.Optional("vocab_size", len(tokens), 1, 1<<30)
	c.RMSEps = float32(r.Float("attention.layer_norm_rms_epsilon"))

	_, own := f.Tensor("output.weight")
	c.tied = !own
	c.readAttention(r)
	if c.Arch != archDense {
		c.readIndex(r)
	}
	c.Dense = r.Optional("leading_dense_block_count", 0, 0, c.Layers-1)
	if c.Dense > 0 {
		c.DenseFF = r.Number("feed_forward_length", 1, big)
	}
	c.readExperts(r)
	c.readRoPE(r)
	keys := known
	if c.Arch != archDense {
		keys = slices.Concat(known, knownOfIndex)
	}
	c.unreadKeys = r.RefuseUnknown(keys)
	return c, r.Err()
}

// readAttention reads the shape of attention. In files since 2025 key_length and
// value_length are those of the latent row, and those of a head have keys of their own;
// before, they were those of a head.
func (c *Config) readAttention(r *decoder.Keys) {
	const big = 1 << 24
	c.Heads = r.Number("attention.head_count", 1, 65536)
	c.KVRank = r.Number("attention.kv_lora_rank", 1, big)
	c.RotDim = r.Number("rope.dimension_count", 2, 65536)
	if _, direct := r.File.Tensor("blk.0.attn_q.weight"); !direct {
		c.QRank = r.Number("attention.q_lora_rank", 1, big)
	}
	_, split := r.File.Tensor("blk.0.attn_k_b.weight")
	c.Merged = !split
	key, value := "attention.key_length", "attention.value_length"
	if r.Has(key+"_mla") || r.Has(value+"_mla") {
		if n := r.Optional(key, c.KVRank+c.RotDim, 1, big); n != c.KVRank+c.RotDim {
			r.Fail("key %q is %d; a latent row has kv_lora_rank and rope.dimension_count, %d", r.Name(key), n, c.KVRank+c.RotDim)
		}
		key, value = key+"_mla", value+"_mla"
	}
	length := r.Number(key, 2, 65536)
	c.Value = r.Number(value, 1, 65536)
	if c.RotDim%2 != 0 || c.RotDim >= length {
		r.Fail("key %q is %d; expected an even number below the head's %d", r.Name("rope.dimension_count"), c.RotDim, length)
		return
	}
	c.Nope = length - c.RotDim
}

func (c *Config) readExperts(r *decoder.Keys) {
	const big = 1 << 24
	c.Experts = r.Number("expert_count", 1, 65536)
	c.Used = r.Number("expert_used_count", 1, decoder.MostUsed)
	c.ExpertFF = r.Number("expert_feed_forward_length", 1, big)
	c.SharedFF = c.ExpertFF * r.Number("expert_shared_count", 0, 64)
	c.WeightsNorm = r.Bool("expert_weights_norm", false)
	c.WeightsScale = 1
	if !r.Has("expert_weights_scale") {
		c.supposed = append(c.supposed, "expert_weights_scale (using 1)")
	}
	if v, ok := r.File.Float(r.Name("expert_weights_scale")); !ok || v != 0 { // some files say 0 for none
		c.WeightsScale = float32(r.OptionalFloat("expert_weights_scale", 1))
	}
	c.Score = c.readScore(r)
	if c.Score == kernels.Sigmoid && !r.Has("expert_weights_norm") { // files of models with softmax lack it
		c.supposed = append(c.supposed, "expert_weights_norm (using false)")
	}
	if c.Score == kernels.Sigmoid && !c.biased(r.File) { // every released model with sigmoid has them
		c.supposed = append(c.supposed, "biases of routers (exp_probs_b, using 0)")
	}
	c.Groups = max(1, r.Optional("expert_group_count", 1, 0, 65536))
	c.GroupsUsed = c.Groups
	if c.Groups > 1 {
		c.GroupsUsed = r.Number("expert_group_used_count", 1, c.Groups)
	} else if n := r.Optional("expert_group_used_count", 1, 0, 65536); n > 1 {
		r.Fail("key %q is %d, but %q counts no groups: give it by --override-kv (8 in V3 and R1)", r.Name("expert_group_used_count"), n, r.Name("expert_group_count"))
	}
	// V3 (sigmoid) adds up a group's two best, V2 (softmax) takes the best.
	c.GroupScore = kernels.GroupBest
	if c.Score == kernels.Sigmoid {
		c.GroupScore = kernels.GroupTopTwo
	}
	switch {
	case c.Used > c.Experts:
		r.Fail("a token uses %d experts of only %d", c.Used, c.Experts)
	case c.Experts%c.Groups != 0:
		r.Fail("%d experts do not divide into %d groups", c.Experts, c.Groups)
	case c.GroupsUsed*(c.Experts/c.Groups) < c.Used:
		r.Fail("%d groups of %d experts have fewer than the %d that are used", c.GroupsUsed, c.Experts/c.Groups, c.Used)
	}
}

// readScore is the function of the router. Files of 2024 do not say it and mean softmax.
// GLM-4.7-Flash's do not either and mean sigmoid; their vocabulary and number of layers
// tell them apart, with or without the block for multi-token prediction. Files of GLM-5
// may lack it too; V3.2's must have it.
func (c *Config) readScore(r *decoder.Keys) kernels.Score {
	const key = "expert_gating_func"
	if !r.Has(key) && c.Arch != archV32 {
		if c.Arch == archGLM || c.Vocab == 154880 && (c.FileLayers == 47 || c.FileLayers == 48) {
			return kernels.Sigmoid
		}
		if c.biased(r.File) {
			r.Fail("key %q is missing, and the routers have biases, which models with softmax do not have: with sigmoid, give it by --override-kv %s=int:2", r.Name(key), r.Name(key))
		}
		return kernels.Softmax
	}
	switch n, ok := r.File.Uint(r.Name(key)); {
	case ok && n == 1:
		return kernels.Softmax
	case ok && n == 2:
		return kernels.Sigmoid
	}
	r.Fail("key %q must be 1 (softmax) or 2 (sigmoid)", r.Name(key))
	return kernels.Softmax
}

// biased reports whether the first router has a bias.
func (c *Config) biased(f *gguf.File) bool {
	for _, name := range []string{"exp_probs_b.bias", "exp_probs_b.weight"} {
		if _, ok := f.Tensor(fmt.Sprintf("blk.%d.%s", c.Dense, name)); ok {
			return true
		}
	}
	return false
}

// readRoPE reads the rotation and the scale of attention, which YaRN changes: with m = 1
// + multiplier*ln(factor) it is m²/sqrt(length of a head's key), and cos and sin keep
// magnitude 1. Without a multiplier, which no released model lacks, cos and sin have
// magnitude 1 + 0.1*ln(factor) and the scale is as without YaRN, because transformers
// reads a configuration without mscale_all_dim that way. Engines disagree here: llama.cpp
// multiplies the scale by m² too, ik_llama.cpp does neither.
func (c *Config) readRoPE(r *decoder.Keys) {
	c.RopeBase = r.OptionalFloat("rope.freq_base", 10000)
	if !r.Has("rope.freq_base") {
		c.supposed = append(c.supposed, "rope.freq_base (using 10000)")
	}
	c.YaRN, c.Turn = decoder.YaRN{Factor: 1}, 1
	c.Scale = 1 / math.Sqrt(float64(max(1, c.Nope+c.RotDim)))
	kind, ok := r.File.String(r.Name("rope.scaling.type"))
	switch {
	case !ok && !r.Has("rope.scaling.factor"), ok && kind == "none":
		return
	case !ok || kind != "yarn":
		r.Fail("key %q is %q; expected yarn or none", r.Name("rope.scaling.type"), kind)
		return
	}
	c.Betas = r.Has("rope.scaling.yarn_beta_fast") || r.Has("rope.scaling.yarn_beta_slow")
	c.YaRN = decoder.YaRN{
		Factor:   r.Float("rope.scaling.factor"),
		Original: r.Optional("rope.scaling.original_context_length", c.Context, 1, 1<<30),
		BetaFast: r.OptionalFloat("rope.scaling.yarn_beta_fast", 32),
		BetaSlow: r.OptionalFloat("rope.scaling.yarn_beta_slow", 1),
	}
	c.YaRN.Check(r)
	if !r.Has("rope.scaling.original_context_length") {
		c.supposed = append(c.supposed, fmt.Sprintf("rope.scaling.original_context_length (using %d)", c.Context))
	}
	if c.YaRN.Factor <= 1 {
		return
	}
	const key = "rope.scaling.yarn_log_multiplier"
	if !r.Has(key) {
		c.Turn = float32(1 + 0.1*math.Log(c.YaRN.Factor))
		return
	}
	multiplier, ok := r.File.Float(r.Name(key))
	if !ok || !(multiplier >= 0) || math.IsInf(multiplier, 0) {
		r.Fail("key %q is not a number of at least 0 (0.1 in files of V3, R1 and Kimi K2, 0.0707 in those of V2)", r.Name(key))
		return
	}
	m := 1 + multiplier*math.Log(c.YaRN.Factor)
	c.Scale *= m * m
}

// rowDim is the width of a cached row: the latent part, then the rotated one.
func (c *Config) rowDim() int { return c.KVRank + c.RotDim }
