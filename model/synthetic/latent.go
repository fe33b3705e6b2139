package synthetic

import (
	"fmt"
	"io"
	"math"

	"ringmaster/gguf"
)

// Latent is what a model of the architectures deepseek2, deepseek32 and glm-dsa has
// beside the other fields of Config: multi-head latent attention, leading dense layers,
// routing in groups.
type Latent struct {
	Rank  int // of the latent row
	Nope  int // elements of a head's key that are not rotated
	Value int // elements of a head's value
	Split int // 1: attn_k_b and attn_v_b; 0: attn_kv_b and the keys of files of 2024

	Dense   int // leading layers without experts
	DenseFF int // rows of their feed-forward network

	Gating             int // expert_gating_func: 1 softmax, 2 sigmoid; 0 leaves the key out
	Groups, GroupsUsed int // of experts; 0 leaves the keys out
	Bias               int // 1: exp_probs_b
	Norm               int // 1: expert_weights_norm

	// IndexEvery lists the layers with an indexer in the file: the first two, and from
	// the third on each of this number. 0 leaves the list out.
	IndexEvery int

	// The keys of YaRN; 0 leaves one out. A YaRNFactor of 0 leaves all of them out.
	YaRNLog, BetaFast, BetaSlow float64
}

// v3 is the true shape of DeepSeek V3 and R1.
var v3 = Config{
	Arch: archLatent, Layers: 61, Embd: 7168, Vocab: 129280, Heads: 128, RotDim: 64, QRank: 1536,
	Experts: 256, Used: 8, Shared: 1, FF: 2048, Context: 163840, RMSEps: 1e-6, WeightsScale: 2.5,
	RopeBase: 10000, YaRNFactor: 40, YaRNContext: 4096, Parts: 1, Seed: 1, Pre: "deepseek-v3",
	Latent: Latent{Rank: 512, Nope: 128, Value: 128, Split: 1, Dense: 3, DenseFF: 18432, Gating: 2, Groups: 8, GroupsUsed: 4,
		Bias: 1, Norm: 1, YaRNLog: 0.1},
	Types: Types{gguf.Q4_K, gguf.Q4_K, gguf.Q4_K, gguf.Q8_0, gguf.F32, gguf.F16, gguf.Q8_0},
}

// latentPresets change v3.
var latentPresets = map[string]func(c *Config){
	"v3":      func(c *Config) { c.Holes = true },
	"k2":      func(c *Config) { kimi(c); c.Holes = true },
	"v2":      func(c *Config) { v2(c); c.Holes = true },
	"v2-lite": func(c *Config) { lite(c); c.Holes = true },
	"moonlight": func(c *Config) {
		lite(c)
		c.Pre, c.Vocab, c.WeightsScale, c.RopeBase, c.YaRNFactor, c.Context = "kimi-k2", 163840, 2.446, 50000, 0, 8192
		c.Latent.Split, c.Latent.Gating, c.Latent.Bias, c.Latent.Norm, c.Latent.DenseFF, c.Holes = 1, 2, 1, 1, 11264, true
		c.Types.Down = gguf.Q8_0
	},
	"glm-flash": func(c *Config) { glm(c); c.Holes = true },
	"v32":       func(c *Config) { v32(c); c.Holes = true },
	"glm5":      func(c *Config) { glm5(c); c.Holes = true },
	"small-v3": func(c *Config) {
		c.Layers, c.Embd, c.Vocab, c.Heads, c.QRank, c.FF = 8, 1024, 4096, 16, 512, 256
		c.Latent.Dense, c.Latent.DenseFF = 1, 2304
	},
	"bench-v3": func(c *Config) { c.Layers, c.Vocab, c.Experts, c.Latent.Dense = 4, 16384, 32, 1 },
	"ds2-tiny": func(c *Config) { tinyLatent(c, 5, 8); c.Experts, c.Latent.Dense = 32, 2 },
	"k2-tiny": func(c *Config) {
		kimi(c)
		tinyLatent(c, 4, 4)
		c.Experts = 48
	},
	"ds2lite-tiny": func(c *Config) { // 27 layers, by which llama.cpp knows a Lite
		lite(c)
		tinyLatent(c, 27, 4)
		c.QRank, c.Experts, c.FF, c.RotDim = 0, 16, 64, 32
		c.Latent.Rank, c.Latent.Nope, c.Latent.Value, c.Latent.DenseFF = 128, 64, 32, 352
		c.Types.Down = gguf.Q5_0
	},
	"glm-tiny": func(c *Config) {
		glm(c)
		tinyLatent(c, 4, 5)
	},
	"v32-tiny": func(c *Config) {
		v32(c)
		tinyLatent(c, 4, 8)
		c.Experts, c.Latent.Dense, c.IndexHeads, c.TopK = 32, 1, 8, 64
	},
	"glm5-tiny": func(c *Config) {
		glm5(c)
		tinyLatent(c, 8, 4)
		c.Experts, c.Latent.Dense, c.Latent.IndexEvery, c.IndexHeads, c.TopK = 16, 1, 4, 4, 64
	},
}

func tinyLatent(c *Config, layers, heads int) {
	c.Layers, c.Heads, c.Embd, c.Vocab, c.QRank, c.FF, c.Latent.DenseFF = layers, heads, 256, 512, 128, 256, 512
}

func kimi(c *Config) {
	c.Heads, c.Experts, c.WeightsScale, c.RopeBase, c.YaRNFactor, c.Context = 64, 384, 2.827, 50000, 32, 131072
	c.Vocab, c.Pre = 163840, "kimi-k2"
	l := &c.Latent
	l.Dense, l.Groups, l.GroupsUsed, l.BetaFast, l.BetaSlow = 1, 1, 1, 1, 1
}

func v2(c *Config) {
	c.Layers, c.Embd, c.Vocab, c.Experts, c.Used, c.Shared, c.FF, c.WeightsScale, c.Pre = 60, 5120, 102400, 160, 6, 2, 1536, 16, "deepseek-llm"
	l := &c.Latent
	l.Dense, l.DenseFF, l.Gating, l.GroupsUsed, l.Bias, l.Norm, l.YaRNLog = 1, 12288, 1, 3, 0, 0, 0.0707
}

func lite(c *Config) {
	v2(c)
	c.Layers, c.Embd, c.Heads, c.QRank, c.Experts, c.FF, c.WeightsScale = 27, 2048, 16, 0, 64, 1408, 1
	c.Types.Down = gguf.Q5_0 // rows of 1408 are no multiple of 256
	l := &c.Latent
	l.Split, l.DenseFF, l.Gating, l.Groups, l.GroupsUsed = 0, 10944, 0, 0, 0
}

func glm(c *Config) {
	c.Layers, c.Embd, c.Vocab, c.Heads, c.QRank, c.Experts, c.Used, c.FF = 47, 2048, 154880, 20, 768, 64, 4, 1536
	c.WeightsScale, c.RopeBase, c.YaRNFactor, c.Context, c.RMSEps, c.Pre = 1.8, 1e6, 0, 202752, 1e-5, "glm4"
	l := &c.Latent
	l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 192, 256, 1, 10240, 1, 1
}

// v32 is DeepSeek V3.2, glm5 GLM-5, in which all layers have an indexer.
func v32(c *Config) { c.Arch, c.IndexHeads, c.IndexDim, c.TopK = archV32, 64, 128, 2048 }

func glm5(c *Config) {
	glm(c)
	c.Arch, c.IndexHeads, c.IndexDim, c.TopK = archGLM, 32, 128, 2048
	c.Layers, c.Embd, c.Heads, c.QRank, c.Experts, c.Used, c.FF, c.WeightsScale = 78, 6144, 64, 2048, 256, 8, 2048, 2.5
	c.Latent.Dense, c.Latent.DenseFF = 3, 12288
}

// hasIndex reports whether a layer's tensors include an indexer: in files that do not
// list the layers with one, all do.
func (c *Config) hasIndex(layer int) bool {
	every := c.Latent.IndexEvery
	return c.sparse() && (every == 0 || layer < 2 || (layer-2)%every == 0)
}

// checkLatent rejects shapes that no loader of deepseek2 could accept.
func (c *Config) checkLatent() error {
	l := &c.Latent
	switch {
	case c.RotDim%2 != 0:
		return fmt.Errorf("n_rot %d is odd", c.RotDim)
	case l.Dense >= c.Layers:
		return fmt.Errorf("n_dense %d leaves none of %d layers with experts", l.Dense, c.Layers)
	case l.Gating > 2:
		return fmt.Errorf("gating %d: want 1 (softmax), 2 (sigmoid), or 0 for no key", l.Gating)
	case l.Groups > 1 && (c.Experts%l.Groups != 0 || l.GroupsUsed > l.Groups || l.GroupsUsed*(c.Experts/l.Groups) < c.Used):
		return fmt.Errorf("%d experts do not allow %d used of %d of %d groups", c.Experts, c.Used, l.GroupsUsed, l.Groups)
	case c.sparse() && (c.IndexDim < c.RotDim || c.IndexDim&(c.IndexDim-1) != 0 || c.QRank == 0):
		return fmt.Errorf("idx_dim %d is below n_rot %d or not a power of two, or q_lora %d is 0, but the indexer takes its queries from it",
			c.IndexDim, c.RotDim, c.QRank)
	case c.Alias:
		return fmt.Errorf("files of %s have no other tensor names", c.Arch)
	}
	return nil
}

// latentKeys is the rest of the metadata, as upstream's converters write and wrote it.
func (c *Config) latentKeys() []pair {
	a, l := c.Arch+".", &c.Latent
	key, value, heads := l.Nope+c.RotDim, l.Value, c.Heads
	if l.Split != 0 { // key and value of the latent row, which is one head
		key, value, heads = l.Rank+c.RotDim, l.Rank, 1
	}
	pairs := []pair{
		{a + "feed_forward_length", uint32(l.DenseFF)},
		{a + "leading_dense_block_count", uint32(l.Dense)},
		{a + "attention.head_count", uint32(c.Heads)},
		{a + "attention.head_count_kv", uint32(heads)},
		{a + "attention.key_length", uint32(key)},
		{a + "attention.value_length", uint32(value)},
		{a + "attention.kv_lora_rank", uint32(l.Rank)},
		{a + "attention.layer_norm_rms_epsilon", float32(c.RMSEps)},
		{a + "rope.dimension_count", uint32(c.RotDim)},
		{a + "rope.freq_base", float32(c.RopeBase)},
		{a + "expert_count", uint32(c.Experts)},
		{a + "expert_used_count", uint32(c.Used)},
		{a + "expert_shared_count", uint32(c.Shared)},
		{a + "expert_feed_forward_length", uint32(c.FF)},
		{a + "expert_weights_scale", float32(c.WeightsScale)},
	}
	when := func(wanted bool, more ...pair) {
		if wanted {
			pairs = append(pairs, more...)
		}
	}
	when(c.QRank > 0, pair{a + "attention.q_lora_rank", uint32(c.QRank)})
	when(l.Split != 0, pair{a + "attention.key_length_mla", uint32(l.Nope + c.RotDim)}, pair{a + "attention.value_length_mla", uint32(l.Value)})
	when(c.sparse(),
		pair{a + "attention.indexer.head_count", uint32(c.IndexHeads)},
		pair{a + "attention.indexer.key_length", uint32(c.IndexDim)},
		pair{a + "attention.indexer.top_k", uint32(c.TopK)})
	if l.IndexEvery > 0 {
		full := make([]bool, c.Layers)
		for i := range full {
			full[i] = c.hasIndex(i)
		}
		when(c.sparse(), pair{a + "attention.indexer.types", full})
	}
	when(c.blocks() > 0, pair{a + "nextn_predict_layers", uint32(c.blocks())})
	when(l.Gating != 0, pair{a + "expert_gating_func", uint32(l.Gating)})
	when(l.Norm != 0, pair{a + "expert_weights_norm", true})
	when(l.Groups != 0, pair{a + "expert_group_count", uint32(l.Groups)}, pair{a + "expert_group_used_count", uint32(l.GroupsUsed)})
	when(c.YaRNFactor != 0,
		pair{a + "rope.scaling.type", "yarn"},
		pair{a + "rope.scaling.factor", float32(c.YaRNFactor)},
		pair{a + "rope.scaling.original_context_length", uint32(c.YaRNContext)})
	when(c.YaRNFactor != 0 && l.YaRNLog != 0, pair{a + "rope.scaling.yarn_log_multiplier", float32(l.YaRNLog)})
	when(c.YaRNFactor != 0 && l.BetaFast != 0, pair{a + "rope.scaling.yarn_beta_fast", float32(l.BetaFast)})
	when(c.YaRNFactor != 0 && l.BetaSlow != 0, pair{a + "rope.scaling.yarn_beta_slow", float32(l.BetaSlow)})
	return pairs
}

// latentTensors adds all tensors of a model with multi-head latent attention. The outputs
// are scaled by the depth, because every sub-layer adds to the residual stream: otherwise
// its variance would grow and hide later layers.
func (m *maker) latentTensors() {
	c := m.c
	E := c.Embd
	m.matrix("token_embd.weight", c.Types.Embd, 1, E, c.Vocab)
	m.matrix("output.weight", c.Types.Output, 3*inv(E), E, c.Vocab)
	m.vector("output_norm.weight", gguf.F32, normal(1, 0.1), E)
	depth := 2 / math.Sqrt(float64(max(4, c.Layers)))
	for i := range c.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		m.latentAttention(p, depth)
		if c.hasIndex(i) {
			m.latentIndex(p)
		}
		if i < c.Latent.Dense {
			m.vector(p+"ffn_norm.weight", gguf.F32, normal(1, 0.1), E)
			ff := c.Latent.DenseFF
			m.matrix(p+"ffn_gate.weight", c.Types.Dense, inv(E), E, ff)
			m.matrix(p+"ffn_up.weight", c.Types.Dense, inv(E), E, ff)
			m.matrix(p+"ffn_down.weight", c.Types.Dense, depth*inv(ff), ff, E)
			continue
		}
		m.mixture(i, p)
	}
	if c.Block != "" {
		m.latentBlock(depth)
	}
}

func (m *maker) latentAttention(p string, out float64) {
	c, l := m.c, &m.c.Latent
	E, H, dense := c.Embd, c.Heads, c.Types.Dense
	m.vector(p+"attn_norm.weight", gguf.F32, normal(1, 0.1), E)
	if head := l.Nope + c.RotDim; c.QRank > 0 {
		m.matrix(p+"attn_q_a.weight", dense, inv(E), E, c.QRank)
		m.vector(p+"attn_q_a_norm.weight", gguf.F32, normal(1, 0.1), c.QRank)
		m.matrix(p+"attn_q_b.weight", dense, inv(c.QRank), c.QRank, H*head)
	} else {
		m.matrix(p+"attn_q.weight", dense, inv(E), E, H*head)
	}
	m.matrix(p+"attn_kv_a_mqa.weight", dense, inv(E), E, l.Rank+c.RotDim)
	m.vector(p+"attn_kv_a_norm.weight", gguf.F32, normal(1, 0.1), l.Rank)
	if l.Split != 0 {
		m.matrix(p+"attn_k_b.weight", dense, inv(l.Rank), l.Nope, l.Rank, H)
		m.matrix(p+"attn_v_b.weight", dense, inv(l.Rank), l.Rank, l.Value, H)
	} else if dense == gguf.F32 {
		m.merged(p)
	} else {
		m.matrix(p+"attn_kv_b.weight", dense, inv(l.Rank), l.Rank, H*(l.Nope+l.Value))
	}
	m.matrix(p+"attn_output.weight", dense, out*inv(H*l.Value), H*l.Value, E)
}

func (m *maker) latentIndex(p string) {
	c := m.c
	m.matrix(p+"indexer.attn_q_b.weight", c.Types.Dense, inv(c.QRank), c.QRank, c.IndexHeads*c.IndexDim)
	m.matrix(p+"indexer.attn_k.weight", c.Types.Dense, inv(c.Embd), c.Embd, c.IndexDim)
	m.vector(p+"indexer.k_norm.weight", gguf.F32, normal(1, 0.1), c.IndexDim)
	m.vector(p+"indexer.k_norm.bias", gguf.F32, normal(0, 0.1), c.IndexDim)
	m.matrix(p+"indexer.proj.weight", gguf.F32, inv(c.Embd), c.Embd, c.IndexHeads)
}

// merged adds attn_kv_b in F32. Its numbers are those of attn_k_b, transposed, and
// attn_v_b in the file that differs in Split alone.
func (m *maker) merged(p string) {
	c, l := m.c, &m.c.Latent
	shape := []int64{int64(l.Rank), int64(c.Heads * (l.Nope + l.Value))}
	m.large(p+"attn_kv_b.weight", gguf.F32, shape, func(_ source, w io.Writer) error {
		keys, values := newSource(c.Seed, p+"attn_k_b.weight"), newSource(c.Seed, p+"attn_v_b.weight")
		per := l.Nope * l.Rank // of the keys of a head
		drawn, turned, rest := make([]byte, 4*per), make([]byte, 4*per), make([]byte, 4*l.Value*l.Rank)
		for range c.Heads {
			if err := keys.blocks(drawn, gguf.F32, inv(l.Rank)); err != nil {
				return err
			}
			for r := range l.Rank {
				for j := range l.Nope {
					copy(turned[4*(j*l.Rank+r):][:4], drawn[4*(r*l.Nope+j):])
				}
			}
			if err := values.blocks(rest, gguf.F32, inv(l.Rank)); err != nil {
				return err
			}
			for _, b := range [][]byte{turned, rest} {
				if _, err := w.Write(b); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
