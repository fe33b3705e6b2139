package deepseek2_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek2"
)

// TestConfigOfPresets: the numbers of the released models, computed by hand from the
// specification of each.
func TestConfigOfPresets(t *testing.T) {
	read := func(name string) deepseek2.Config {
		c := decodertest.Preset(t, name)
		c.Holes, c.Vocab = true, 2000
		read, err := deepseek2.ReadConfig(decodertest.OnDisk(t, c))
		require.NoError(t, err)
		return read
	}
	c := read("v3")
	require.InDelta(t, 0.13523378, c.Scale, 1e-8)
	require.Equal(t, decoder.YaRN{Factor: 40, Original: 4096, BetaFast: 32, BetaSlow: 1}, c.YaRN)
	require.False(t, c.Betas || c.Merged)
	require.Equal(t, []int{61, 7168, 128, 1536, 512, 64, 128, 128, 3, 18432}, []int{c.Layers, c.Embd, c.Heads, c.QRank, c.KVRank, c.RotDim, c.Nope, c.Value, c.Dense, c.DenseFF})
	require.Equal(t, []int{256, 8, 2048, 2048, 8, 4}, []int{c.Experts, c.Used, c.ExpertFF, c.SharedFF, c.Groups, c.GroupsUsed})
	require.Equal(t, kernels.Sigmoid, c.Score)
	require.Equal(t, kernels.GroupTopTwo, c.GroupScore)
	require.True(t, c.WeightsNorm)

	c = read("v2")
	require.InDelta(t, 0.11472138, c.Scale, 1e-8)
	require.Equal(t, []int{160, 6, 3072, 8, 3}, []int{c.Experts, c.Used, c.SharedFF, c.Groups, c.GroupsUsed})
	require.Equal(t, kernels.Softmax, c.Score)
	require.Equal(t, kernels.GroupBest, c.GroupScore)
	require.False(t, c.WeightsNorm)
	require.Equal(t, float32(16), c.WeightsScale)

	c = read("v2-lite")
	require.InDelta(t, 0.11472138, c.Scale, 1e-8)
	require.True(t, c.Merged)
	require.Equal(t, []int{0, 128, 128, 1, 1}, []int{c.QRank, c.Nope, c.Value, c.Groups, c.GroupsUsed})
	require.Equal(t, kernels.Softmax, c.Score, "the key is missing")

	c = read("k2")
	require.InDelta(t, 0.13086080, c.Scale, 1e-8)
	require.Equal(t, decoder.YaRN{Factor: 32, Original: 4096, BetaFast: 1, BetaSlow: 1}, c.YaRN)
	require.True(t, c.Betas)
	require.Equal(t, 50000.0, c.RopeBase)

	c = read("moonlight")
	require.InDelta(t, 1/math.Sqrt(192), c.Scale, 1e-9)
	require.Equal(t, 1.0, c.YaRN.Factor)
	c = read("v32")
	require.InDelta(t, 0.13523378, c.Scale, 1e-8)
	require.Equal(t, []int{61, 64, 128, 2048}, []int{c.Layers, c.Index.Heads, c.Index.Dim, c.Index.TopK})
	require.True(t, c.Index.Halves)
	c = read("glm5")
	require.InDelta(t, 1/math.Sqrt(256), c.Scale, 1e-9)
	require.Equal(t, []int{78, 64, 6144, 2048, 192, 256}, []int{c.Layers, c.Heads, c.Embd, c.QRank, c.Nope, c.Value})
	require.Equal(t, []int{32, 128, 2048}, []int{c.Index.Heads, c.Index.Dim, c.Index.TopK})
	require.False(t, c.Index.Halves)
	c = read("glm-flash")
	require.InDelta(t, 1/math.Sqrt(256), c.Scale, 1e-9)
	require.Equal(t, []int{192, 256}, []int{c.Nope, c.Value})
}

// minimalKeys are those of a valid file.
var minimalKeys = map[string]any{
	"block_count":                      uint32(3),
	"context_length":                   uint32(4096),
	"vocab_size":                       uint32(300),
	"embedding_length":                 uint32(64),
	"feed_forward_length":              uint32(96),
	"leading_dense_block_count":        uint32(1),
	"attention.head_count":             uint32(4),
	"attention.head_count_kv":          uint32(1),
	"attention.q_lora_rank":            uint32(32),
	"attention.kv_lora_rank":           uint32(64),
	"attention.key_length":             uint32(80),
	"attention.value_length":           uint32(64),
	"attention.key_length_mla":         uint32(48),
	"attention.value_length_mla":       uint32(32),
	"attention.layer_norm_rms_epsilon": float32(1e-6),
	"rope.dimension_count":             uint32(16),
	"rope.scaling.type":                "yarn",
	"rope.scaling.factor":              float32(40),
	"rope.scaling.yarn_log_multiplier": float32(0.1),
	"expert_count":                     uint32(9),
	"expert_used_count":                uint32(3),
	"expert_shared_count":              uint32(1),
	"expert_feed_forward_length":       uint32(32),
	"expert_gating_func":               uint32(2),
}

// minimal is the metadata of a valid file with a change.
func minimal(change map[string]any) map[string]any { return minimalOf("deepseek2", change) }

func minimalOf(arch string, change map[string]any) map[string]any {
	return decodertest.Keys(arch, minimalKeys, change)
}

func configOf(t *testing.T, kv map[string]any) deepseek2.Config {
	c, err := deepseek2.ReadConfig(decodertest.Header(t, kv))
	require.NoError(t, err)
	return c
}

// summary is that of the plan of minimal with a change.
func summary(t *testing.T, change map[string]any) string {
	p, err := deepseek2.NewPlan(decodertest.Header(t, minimal(change)), deepseek2.Options{}, 1)
	require.NoError(t, err)
	return p.Summary
}

// TestConfigVariants: what files leave out or say otherwise.
func TestConfigVariants(t *testing.T) {
	read := func(change map[string]any) deepseek2.Config { return configOf(t, minimal(change)) }
	c := read(nil)
	require.Equal(t, []int{32, 32, 1, 1}, []int{c.Nope, c.Value, c.Groups, c.GroupsUsed})
	require.Equal(t, 4096, c.YaRN.Original, "the context, where the file does not say it")
	require.Equal(t, 10000.0, c.RopeBase)
	require.Equal(t, float32(1), c.WeightsScale)
	require.False(t, c.WeightsNorm)

	c = read(map[string]any{"attention.key_length_mla": nil, "attention.value_length_mla": nil,
		"attention.key_length": uint32(48), "attention.value_length": uint32(32), "attention.head_count_kv": uint32(4)})
	require.Equal(t, []int{32, 32}, []int{c.Nope, c.Value}, "a file of 2024")
	require.Equal(t, float32(1), read(map[string]any{"expert_weights_scale": float32(0)}).WeightsScale, "0 is none")
	require.Zero(t, read(map[string]any{"leading_dense_block_count": nil, "feed_forward_length": nil}).Dense)
	require.Equal(t, 1, read(map[string]any{"expert_group_count": uint32(1), "expert_group_used_count": uint32(1)}).Groups)
	require.Equal(t, 1.0, read(map[string]any{"rope.scaling.type": "none"}).YaRN.Factor)
	require.Equal(t, kernels.Softmax, read(map[string]any{"expert_gating_func": nil}).Score)
	flash := map[string]any{"expert_gating_func": nil, "vocab_size": uint32(154880), "block_count": uint32(47)}
	require.Equal(t, kernels.Sigmoid, read(flash).Score, "GLM-4.7-Flash, told by its size")
	require.Zero(t, read(map[string]any{"expert_shared_count": uint32(0)}).SharedFF)
	read(map[string]any{"attention.temperature_scale": float32(0)})
	c = read(map[string]any{"rope.scaling.yarn_beta_fast": float32(1), "rope.scaling.yarn_beta_slow": float32(1)})
	require.True(t, c.Betas)
	require.Equal(t, 1.0, c.YaRN.BetaFast)
}

// TestYaRNWithoutMultiplier: the rotation has another magnitude and the scale is that of
// a model without YaRN; the plan says so.
func TestYaRNWithoutMultiplier(t *testing.T) {
	const key = "rope.scaling.yarn_log_multiplier"
	read := func(change map[string]any) deepseek2.Config { return configOf(t, minimal(change)) }
	c := read(map[string]any{key: nil})
	require.InDelta(t, 1.3688879, c.Turn, 1e-7) // 1 + 0.1 ln 40
	require.InDelta(t, 1/math.Sqrt(48), c.Scale, 1e-9)
	for _, plain := range []map[string]any{nil, {key: float32(0)}, {key: nil, "rope.scaling.factor": float32(1)}, {key: nil, "rope.scaling.type": "none"}} {
		require.Equal(t, float32(1), read(plain).Turn)
	}
	require.Contains(t, summary(t, map[string]any{key: nil}), "the file has no rope.scaling.yarn_log_multiplier, so the rotation has magnitude 1.369")
	require.NotContains(t, summary(t, nil), "yarn_log_multiplier")
	for _, v := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		_, err := deepseek2.ReadConfig(decodertest.Header(t, minimal(map[string]any{key: float32(v)})))
		require.ErrorContains(t, err, `"deepseek2.rope.scaling.yarn_log_multiplier" is not a number of at least 0`)
	}
}

// TestConfigErrors: each error names its key.
func TestConfigErrors(t *testing.T) {
	decodertest.Refuses(t, deepseek2.ReadConfig, minimal, map[string]map[string]any{
		`"deepseek2.block_count" is missing`:                      {"block_count": nil},
		`"deepseek2.attention.kv_lora_rank" is missing`:           {"attention.kv_lora_rank": nil},
		`"deepseek2.attention.q_lora_rank" is missing`:            {"attention.q_lora_rank": nil},
		`"deepseek2.rope.dimension_count" is missing`:             {"rope.dimension_count": nil},
		`"deepseek2.expert_shared_count" is missing`:              {"expert_shared_count": nil},
		`"deepseek2.attention.key_length" is 81`:                  {"attention.key_length": uint32(81)},
		`"deepseek2.attention.value_length_mla" is missing`:       {"attention.value_length_mla": nil},
		"expected an even number below the head's 48":             {"rope.dimension_count": uint32(15), "attention.key_length": uint32(79)},
		`"deepseek2.expert_used_count" is 248; expected 1 to 247`: {"expert_used_count": uint32(248)},
		"a token uses 10 experts of only 9":                       {"expert_used_count": uint32(10)},
		"9 experts do not divide into 2 groups":                   {"expert_group_count": uint32(2), "expert_group_used_count": uint32(1)},
		"1 groups of 1 experts have fewer than the 3 that are":    {"expert_group_count": uint32(9), "expert_group_used_count": uint32(1)},
		`"deepseek2.expert_group_used_count" is missing`:          {"expert_group_count": uint32(3)},
		`"deepseek2.expert_group_used_count" is 4, but "deepsee`:  {"expert_group_count": nil, "expert_group_used_count": uint32(4)},
		`"deepseek2.expert_group_used_count" is 2, but "deepsee`:  {"expert_group_count": uint32(1), "expert_group_used_count": uint32(2)},
		"must be 1 (softmax) or 2 (sigmoid)":                      {"expert_gating_func": uint32(4)},
		`"deepseek2.rope.scaling.type" is "linear"`:               {"rope.scaling.type": "linear"},
		"queries scaled by their position":                        {"attention.temperature_scale": float32(0.1)},
		`key "deepseek2.attention.sinks" is not known`:            {"attention.sinks": uint32(1)},
		`key "deepseek2.expert_something" is not known`:           {"expert_something": uint32(1)},
		`key "deepseek2.rope.scaling.attn_factor" is not known`:   {"rope.scaling.attn_factor": float32(2)},
		`key "deepseek2.final_logit_softcapping" is not known`:    {"final_logit_softcapping": float32(30)},
		`key "deepseek2.rope.scaling.factor" is 0.5; expected 1`:  {"rope.scaling.factor": float32(0.5), "rope.scaling.type": "yarn"},
		"yarn_beta_slow are 1 and 32":                             {"rope.scaling.factor": float32(4), "rope.scaling.type": "yarn", "rope.scaling.yarn_beta_fast": float32(1), "rope.scaling.yarn_beta_slow": float32(32)},
		`key "deepseek2.residual_scale" is not known`:             {"residual_scale": float32(2)},
		`key "deepseek2.moe_every_n_layers" is not known`:         {"moe_every_n_layers": uint32(2)},
		`key "deepseek2.swiglu_limit" is not known`:               {"swiglu_limit": float32(7)},
		`"deepseek2.feed_forward_length" is missing`:              {"feed_forward_length": nil},
		`"deepseek2.leading_dense_block_count" is 3`:              {"leading_dense_block_count": uint32(3)},
		`"deepseek2.expert_weights_norm" must be a boolean`:       {"expert_weights_norm": "yes"},
		`"deepseek2.expert_weights_scale" must be a positive num`: {"expert_weights_scale": float32(-1)},
	})
}

// TestUnreadKeys: a file may have a key with the value that changes nothing; the summary
// names an unknown key.
func TestUnreadKeys(t *testing.T) {
	says := summary(t, map[string]any{"rope.scaling.attn_factor": float32(1), "moe_every_n_layers": uint32(1), "vision.patch": uint32(3)})
	require.Contains(t, says, "; keys that are not read: deepseek2.vision.patch")
	require.NotContains(t, says, "attn_factor")
	require.Contains(t, says, "the output is the embedding", "there is no output.weight")
	says = summary(t, map[string]any{"rope.freq_base": nil, "rope.scaling.original_context_length": nil})
	require.Contains(t, says, ", rope.freq_base (using 10000), rope.scaling.original_context_length (using")
	says = summary(t, map[string]any{"expert_gating_func": uint32(2), "expert_weights_norm": nil, "expert_weights_scale": nil, "nextn_predict_layers": uint32(1)})
	require.Contains(t, says, "; the file lacks expert_weights_scale (using 1), expert_weights_norm (using false), biases of routers (exp_probs_b, using 0)")
	require.Contains(t, says, "; deepseek2.nextn_predict_layers is 1, but no tensor belongs to multi-token prediction, so all 3 blocks run as layers")
}

// TestBiasesWithoutAScore: biases of routers tell that softmax, which files without the key
// mean, is not meant.
func TestBiasesWithoutAScore(t *testing.T) {
	f := decodertest.Header(t, minimal(map[string]any{"expert_gating_func": nil}),
		decodertest.Zeros("blk.1.exp_probs_b.bias", gguf.F32, 9))
	_, err := deepseek2.ReadConfig(f)
	require.ErrorContains(t, err, "--override-kv deepseek2.expert_gating_func=int:2")
	_, err = f.Override("deepseek2.expert_gating_func=int:2")
	require.NoError(t, err)
	c, err := deepseek2.ReadConfig(f)
	require.NoError(t, err)
	require.Equal(t, kernels.Sigmoid, c.Score)
}

// TestBiasesOfSomeLayers: a router's bias that only some layers have is missing in the
// others, where other experts would be chosen without a word.
func TestBiasesOfSomeLayers(t *testing.T) {
	f := decodertest.Header(t, minimal(nil), decodertest.Zeros("blk.2.exp_probs_b.bias", gguf.F32, 9))
	architecture.OpenFails(t, f, `tensor "blk.1.exp_probs_b.bias" is missing`)
}

// TestLoadErrors: all missing, wrong and unknown tensors are reported together.
func TestLoadErrors(t *testing.T) {
	f := decodertest.Header(t, minimal(nil),
		decodertest.Zeros("token_embd.weight", gguf.F16, 64, 299),
		decodertest.Zeros("output_norm.weight", gguf.F32, 63),
		decodertest.Zeros("blk.0.attn_k_b.weight", gguf.F16, 64, 32, 4), // not transposed
		decodertest.Zeros("blk.1.attn_q_a.bias", gguf.F32, 32),
	)
	err := architecture.OpenFails(t, f,
		`tensor "token_embd.weight" has shape [64 299]; expected [64 300 1]`,
		`tensor "output_norm.weight" has shape [63]; expected 64 elements`,
		`tensor "blk.0.attn_k_b.weight" has shape [64 32 4]; expected [32 64 4]`,
		`tensor "blk.0.ffn_gate.weight" is missing`,
		`tensor "blk.1.ffn_gate_inp.weight" is missing`,
		`tensor "blk.0.attn_kv_a_mqa.weight" is missing, and those of 2 more layers`,
		`tensor "blk.1.attn_q_a.bias" is not part of this architecture`,
	)
	require.NotContains(t, err.Error(), `"blk.0.ffn_gate_inp.weight"`, "the first layer has no experts")
}
