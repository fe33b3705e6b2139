package deepseek4_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek4"
	"ringmaster/parallel"
)

func TestReadConfig(t *testing.T) {
	s := small(t)
	c, err := deepseek4.ReadConfig(decodertest.InMemory(t, s))
	require.NoError(t, err)
	require.Equal(t, s.Layers, c.Layers)
	require.Equal(t, s.Ratios, c.Ratios)
	require.Equal(t, s.Embd, c.Embd)
	require.Equal(t, s.Experts, c.Experts)
	require.Equal(t, s.TopK, c.IndexTopK)
	require.Equal(t, s.FF, c.SharedFF)
	require.Equal(t, float32(1.5), c.WeightsScale)
	require.Equal(t, decoder.YaRN{Factor: 16, Original: 65536, BetaFast: 32, BetaSlow: 1}, c.YaRN)
	for i := range c.Layers {
		require.Equal(t, float32(10), c.ClampRouted[i])
	}
}

// minimalKeys are those of a valid file.
var minimalKeys = map[string]any{
	"block_count":                          uint32(3),
	"context_length":                       uint32(4096),
	"vocab_size":                           uint32(300),
	"embedding_length":                     uint32(64),
	"attention.head_count":                 uint32(4),
	"attention.key_length":                 uint32(64),
	"rope.dimension_count":                 uint32(32),
	"rope.freq_base":                       float32(10000),
	"attention.q_lora_rank":                uint32(32),
	"attention.output_lora_rank":           uint32(32),
	"attention.output_group_count":         uint32(2),
	"attention.sliding_window":             uint32(128),
	"attention.compress_ratios":            []int32{128, 4, 0, 0},
	"attention.compress_rope_freq_base":    float32(160000),
	"rope.scaling.type":                    "yarn",
	"rope.scaling.factor":                  float32(16),
	"rope.scaling.original_context_length": uint64(65536),
	"rope.scaling.yarn_beta_fast":          float32(32),
	"rope.scaling.yarn_beta_slow":          float32(1),
	"attention.indexer.head_count":         uint32(4),
	"attention.indexer.key_length":         uint32(32),
	"attention.indexer.top_k":              uint32(8),
	"attention.layer_norm_rms_epsilon":     float32(1e-6),
	"hyper_connection.count":               uint32(4),
	"hyper_connection.sinkhorn_iterations": uint32(20),
	"hyper_connection.epsilon":             float32(1e-6),
	"expert_count":                         uint32(7),
	"expert_used_count":                    uint32(3),
	"expert_feed_forward_length":           uint32(32),
	"expert_weights_scale":                 float32(2.5),
	"hash_layer_count":                     uint32(1),
	"swiglu_clamp_exp":                     float32(10),
	"nextn_predict_layers":                 uint32(1),
	"expert_gating_func":                   "sqrtsoftplus",
	"attention.value_length":               uint32(64),
	"expert_weights_norm":                  true,
}

// minimal is the metadata of a valid file with a change.
func minimal(change map[string]any) map[string]any {
	return decodertest.Keys("deepseek4", minimalKeys, change)
}

// TestConfigVariants: the variants that occur in published files.
func TestConfigVariants(t *testing.T) {
	read := func(change map[string]any) deepseek4.Config {
		c, err := deepseek4.ReadConfig(decodertest.Header(t, minimal(change)))
		require.NoError(t, err)
		return c
	}
	c := read(nil)
	require.Equal(t, 3, c.Layers, "the key for further predictions without their tensors takes no layer away")
	require.Equal(t, []int{128, 4, 0}, c.Ratios, "the array of ratios may be longer than the layers")
	require.Equal(t, float32(2.5), c.WeightsScale)
	require.Equal(t, []float32{10, 10, 10}, c.ClampRouted, "one clamp for all layers")
	require.Equal(t, c.ClampRouted, c.ClampShared, "the shared clamp defaults to the routed one")

	c = read(map[string]any{"swiglu_clamp_shexp": []float32{1, 2, 3, 4}, "expert_gating_func": uint32(4)})
	require.Equal(t, []float32{1, 2, 3}, c.ClampShared)
	c = read(map[string]any{"attention.compress_rope_freq_base": nil, "rope.freq_base_swa": float32(5000)})
	require.Equal(t, 5000.0, c.CompressRopeBase)
	c = read(map[string]any{"rope.scaling.type": "none"})
	require.Equal(t, 1.0, c.YaRN.Factor)
	c = read(map[string]any{"rope.scaling.type": nil})
	require.Equal(t, 16.0, c.YaRN.Factor, "a factor without a type is YaRN")
	c = read(map[string]any{"attention.compress_ratios": nil})
	require.Equal(t, []int{0, 0, 0}, c.Ratios, "without the array the tensors tell the ratios")
	c = read(map[string]any{"swiglu_clamp_exp": nil})
	require.Equal(t, []float32{0, 0, 0}, c.ClampRouted)
}

// TestConfigErrors: each error names its key.
func TestConfigErrors(t *testing.T) {
	decodertest.Refuses(t, deepseek4.ReadConfig, minimal, map[string]map[string]any{
		`"deepseek4.block_count" is missing`:                              {"block_count": nil},
		`"deepseek4.embedding_length" is missing`:                         {"embedding_length": "64"},
		`"deepseek4.attention.head_count_kv" is 2`:                        {"attention.head_count_kv": uint32(2)},
		"value_length is 32 and key_length 64":                            {"attention.value_length": uint32(32)},
		"layer 1 has ratio 8; expected 0, 4 or 128":                       {"attention.compress_ratios": []int32{0, 8, 0}},
		`compress_ratios" has 2 values for 3 layers`:                      {"attention.compress_ratios": []int32{0, 4}},
		"must be 4 (sqrt of softplus)":                                    {"expert_gating_func": uint32(2)},
		"group-limited routing":                                           {"expert_group_count": uint32(8)},
		"4 heads do not divide into 3 output groups":                      {"attention.output_group_count": uint32(3)},
		"a token uses 9 experts of only 7":                                {"expert_used_count": uint32(9)},
		`"deepseek4.expert_used_count" is 248; expected 1 to 247`:         {"expert_used_count": uint32(248)}, // and 8 parts of the shared expert
		`output_group_count" is 256; expected 1 to 255`:                   {"attention.output_group_count": uint32(256)},
		"needs a power of two":                                            {"attention.indexer.key_length": uint32(48)},
		"expected an even number up to the head's 64":                     {"rope.dimension_count": uint32(65)},
		`"deepseek4.rope.scaling.type" is "linear"`:                       {"rope.scaling.type": "linear"},
		`"deepseek4.hyper_connection.sinkhorn_iterations" is missing`:     {"hyper_connection.sinkhorn_iterations": nil},
		`"deepseek4.hyper_connection.epsilon" is missing`:                 {"hyper_connection.epsilon": nil},
		`"deepseek4.hyper_connection.count" is 9; expected 1 to 8`:        {"hyper_connection.count": uint32(9)},
		`"deepseek4.swiglu_clamp_exp" has 2 values for 3 layers`:          {"swiglu_clamp_exp": []float32{1, 2}},
		`"deepseek4.rope.freq_base" must be a positive number`:            {"rope.freq_base": float32(0)},
		`"deepseek4.expert_weights_norm" must be a boolean`:               {"expert_weights_norm": "yes"},
		`"deepseek4.attention.layer_norm_rms_epsilon" must be a positive`: {"attention.layer_norm_rms_epsilon": float32(-1)},
	})
	kv := minimal(nil)
	kv["general.architecture"] = "llama"
	_, err := deepseek4.ReadConfig(decodertest.Header(t, kv))
	require.ErrorContains(t, err, `architecture is "llama", expected "deepseek4"`)
}

// TestUnknownKeys: an unknown key that may change the layers is refused, and any other
// unknown key is named.
func TestUnknownKeys(t *testing.T) {
	for key, value := range map[string]any{
		"rope.scaling.yarn_log_multiplier": float32(0.1), "attention.temperature_scale": float32(1), "attention.scale": float32(1),
		"expert_something": uint32(1), "hyper_connection.mode": uint32(2), "final_logit_softcapping": float32(30), "swiglu_limit": float32(7),
	} {
		_, err := deepseek4.ReadConfig(decodertest.Header(t, minimal(map[string]any{key: value})))
		require.ErrorContains(t, err, `"deepseek4.`+key+`"`)
	}
	p, err := deepseek4.NewPlan(decodertest.Header(t, minimal(map[string]any{"rope.scaling.yarn_log_multiplier": float32(0), "vision.patch": uint32(3), "swiglu_clamp_exp": nil})), deepseek4.Options{}, 1)
	require.NoError(t, err)
	require.Contains(t, p.Summary, "; keys that are not read: deepseek4.vision.patch")
	require.Contains(t, p.Summary, "SwiGLU has no limit")
	f := decodertest.Header(t, minimal(map[string]any{"swiglu_clamp_exp": nil, "swiglu_clamp_shexp": nil}))
	_, err = f.Override("deepseek4.swiglu_clamp_exp=float:10") // what the summary advises
	require.NoError(t, err)
	c, err := deepseek4.ReadConfig(f)
	require.NoError(t, err)
	require.Equal(t, float32(10), c.ClampRouted[0])
	require.Equal(t, float32(10), c.ClampShared[1])
	kv := minimal(nil)
	kv["general.quantization_version"] = uint32(1)
	_, err = deepseek4.ReadConfig(decodertest.Header(t, kv))
	require.ErrorContains(t, err, `key "general.quantization_version" is not 2`)
}

// TestLoadErrors: all missing or wrong tensors are reported together.
func TestLoadErrors(t *testing.T) {
	f := decodertest.Header(t, minimal(nil),
		decodertest.Zeros("token_embd.weight", gguf.F16, 64, 299),
		decodertest.Zeros("output.weight", gguf.I32, 64, 300),
		decodertest.Zeros("output_norm.weight", gguf.F32, 63),
	)
	err := architecture.OpenFails(t, f,
		`tensor "token_embd.weight" has shape [64 299]; expected [64 300 1]`,
		`tensor "output.weight" has type I32, which the cpu`,
		`tensor "output_norm.weight" has shape [63]; expected 64 elements`,
		`tensor "blk.0.attn_compressor_kv.weight" is missing`,
		`tensor "blk.0.ffn_gate_tid2eid.weight" is missing`,
		`tensor "blk.1.indexer.proj.weight" is missing`,
		`tensor "blk.1.exp_probs_b.bias" is missing, and that of 1 more layer`,
	)
	require.NotContains(t, err.Error(), "blk.2.attn_compressor", "ratio 0 has no compressor")
}

func TestPlan(t *testing.T) {
	s := small(t)
	p, err := deepseek4.NewPlan(decodertest.InMemory(t, s), deepseek4.Options{Context: 1024, MaxTokens: 32}, 4)
	require.NoError(t, err)
	require.Contains(t, p.Summary, "(1 raw, 2 of ratio 4, 2 of ratio 128)")
	// 2 layers, 256 entries of a head and an index row, 2 bytes each.
	require.Equal(t, int64(2*256*(64+32)*2), p.Caches[2].Bytes)
	// 2 layers, 8 entries of a head, 2 bytes each, as whole pages.
	require.Equal(t, int64(2*os.Getpagesize()), p.Caches[3].Bytes)
	require.Zero(t, p.Growth, "a context of 1024 is reached without growth")
	require.Equal(t, int64(s.Layers*s.Experts*3*s.Embd*s.FF/32*34), p.Experts)
	require.Positive(t, p.Dense)
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	require.Contains(t, out.String(), "KV cache: ratio 4")
}

// TestPlanOfRanks: the parts add up to the whole, and the output matrix belongs
// to rank 0.
func TestPlanOfRanks(t *testing.T) {
	s := small(t)
	f := decodertest.InMemory(t, s)
	p, err := deepseek4.NewPlan(f, deepseek4.Options{Context: 1024, MaxTokens: 32, Reduce: parallel.Exact}, 1)
	require.NoError(t, err)
	alone, err := p.Place(parallel.ShareExperts, []float64{1})
	require.NoError(t, err)
	one := p.ForRank(0, alone)
	require.Equal(t, p.Weights()+p.Fixed()+p.PerSequence(), one.Resident())
	require.Equal(t, p.Fixed()+p.PerSequence(), one.Need())

	placement, err := p.Place(parallel.ShareExperts, []float64{1, 1, 1})
	require.NoError(t, err)
	var ranks []decoder.RankPlan
	experts := int64(0)
	for r := range placement {
		ranks = append(ranks, p.ForRank(r, placement))
		experts += ranks[r].ExpertBytes
	}
	require.Equal(t, p.Experts, experts)
	require.Equal(t, p.Experts/7*3, ranks[0].ExpertBytes)
	output, ok := f.Tensor("output.weight")
	require.True(t, ok)
	require.Equal(t, p.Dense, ranks[0].DenseBytes)
	require.Equal(t, p.Dense-int64(len(output.Data)), ranks[1].DenseBytes)
	require.Equal(t, p.Fixed()+parallel.SumsJoinBytes(s.Embd, 32, 3, false), ranks[2].Buffers)

	// A rank that has a part needs of another what they have not in common.
	all := placement[2]
	weights := func(r decoder.RankPlan) int64 { return r.ExpertBytes + r.DenseBytes }
	for r := range placement {
		require.Equal(t, weights(ranks[r]), p.Fresh(nil, placement[r], all), "a newcomer")
		require.Zero(t, p.Fresh(&placement[r], placement[r], all))
		require.Zero(t, p.Fresh(&alone[0], placement[r], all))
		require.Equal(t, weights(one)-weights(ranks[r]), p.Fresh(&placement[r], alone[0], all))
	}
	require.Equal(t, ranks[1].ExpertBytes, p.Fresh(&placement[2], placement[1], all), "other experts alone")
	require.Equal(t, ranks[0].ExpertBytes+int64(len(output.Data)), p.Fresh(&placement[1], placement[0], all), "and the output")
	divided, err := p.Place(parallel.ShareAll, []float64{1, 1, 1})
	require.NoError(t, err)
	for r := range divided {
		whole := weights(p.ForRank(r, divided))
		require.Equal(t, whole, p.Fresh(nil, divided[r], divided[2]))
		require.Zero(t, p.Fresh(&divided[r], divided[r], divided[2]))
		require.Equal(t, weights(one)-whole, p.Fresh(&divided[r], alone[0], alone[0]))
		other := divided[(r+1)%3]
		require.Equal(t, whole-p.Replicated(parallel.ShareAll), p.Fresh(&other, divided[r], divided[2]), "all that is divided")
	}

	var out bytes.Buffer
	require.NoError(t, decoder.WriteRanks(&out, ranks, "here", "10.0.0.2", "10.0.0.3"))
	require.Contains(t, out.String(), "[3, 5)")
	require.Contains(t, out.String(), "10.0.0.3")
	t.Log("\n" + out.String())
}

// TestPlanOfUnreadBlocks: blocks after the last layer are mapped but not read.
func TestPlanOfUnreadBlocks(t *testing.T) {
	f := decodertest.Header(t, minimal(nil),
		decodertest.Zeros("blk.2.nextn.eh_proj.weight", gguf.F16, 128, 64),
		decodertest.Zeros("blk.2.ffn_down_exps.weight", gguf.F16, 32, 64, 7),
		decodertest.Zeros("blk.1.ffn_down_exps.weight", gguf.F16, 32, 64, 7),
		decodertest.Zeros("output_norm.weight", gguf.F32, 64),
	)
	p, err := deepseek4.NewPlan(f, deepseek4.Options{}, 1)
	require.NoError(t, err)
	require.Equal(t, int64(2*32*64*7), p.Experts)
	require.Equal(t, int64(4*64), p.Dense)
	require.Equal(t, int64(2*(128*64+32*64*7)), p.Unread)
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	require.Contains(t, out.String(), "not read")
	require.NotContains(t, p.Summary, "nextn_predict_layers")
	p, err = deepseek4.NewPlan(decodertest.Header(t, minimal(nil)), deepseek4.Options{}, 1)
	require.NoError(t, err)
	require.Contains(t, p.Summary, "; deepseek4.nextn_predict_layers is 1, but no tensor belongs to multi-token prediction, so all ")
}
