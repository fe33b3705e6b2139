package deepseek41_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek41"
)

func TestReadConfig(t *testing.T) {
	s := small(t)
	c, err := deepseek41.ReadConfig(decodertest.InMemory(t, s))
	require.NoError(t, err)
	require.Equal(t, s.Layers, c.Layers)
	require.Equal(t, s.Embd, c.Embd)
	require.Equal(t, float32(1e-20), c.RMSEps)
	require.Equal(t, []deepseek41.Role{{0, -1, -1, -1}, {0, -1, -1, 0}, {2, 2, 2, 1}, {2, 2, 2, -1}, {1, 4, 4, -1}, {1, 4, 4, -1}, {1, 4, 6, -1}, {1, 4, 6, -1}}, c.Roles)
	require.Equal(t, []int{4, 4, 4}, []int{c.Candidates, c.BlocksKept, c.BlockSize})
	require.Equal(t, decoder.YaRN{Factor: 16, Original: 65536, BetaFast: 32, BetaSlow: 1}, c.YaRN)
	require.Equal(t, []int{4, 2, 64}, []int{c.Engram.Gram, c.Engram.Heads, c.Engram.Width})
	require.Len(t, c.Engram.Map, c.Vocab)
}

// minimalKeys are those of a valid file: a window, a source of ratio 2 with engram, one of
// ratio 1.
var minimalKeys = map[string]any{
	"block_count":                          uint32(3),
	"context_length":                       uint32(4096),
	"vocab_size":                           uint32(5),
	"embedding_length":                     uint32(64),
	"attention.head_count":                 uint32(4),
	"attention.key_length":                 uint32(64),
	"rope.dimension_count":                 uint32(32),
	"rope.freq_base":                       float32(10000),
	"attention.q_lora_rank":                uint32(32),
	"attention.output_lora_rank":           uint32(32),
	"attention.output_group_count":         uint32(2),
	"attention.sliding_window":             uint32(128),
	"attention.compress_ratios":            []int32{0, 2, 1, 0, 0},
	"attention.compress_rope_freq_base":    float32(160000),
	"rope.scaling.type":                    "yarn",
	"rope.scaling.factor":                  float32(16),
	"rope.scaling.original_context_length": uint64(65536),
	"rope.scaling.yarn_beta_fast":          float32(32),
	"rope.scaling.yarn_beta_slow":          float32(1),
	"attention.indexer.head_count":         uint32(4),
	"attention.indexer.key_length":         uint32(32),
	"attention.indexer.top_k":              uint32(8),
	"attention.layer_norm_rms_epsilon":     float32(1e-20),
	"hyper_connection.count":               uint32(4),
	"hyper_connection.sinkhorn_iterations": uint32(20),
	"hyper_connection.epsilon":             float32(1e-6),
	"expert_count":                         uint32(7),
	"expert_used_count":                    uint32(3),
	"expert_feed_forward_length":           uint32(32),
	"expert_weights_scale":                 float32(1.5),
	"swiglu_clamp_exp":                     []float32{10, 10, 10},
	"engram.layer_ids":                     []int32{1},
	"engram.head_count":                    uint32(2),
	"engram.key_length":                    uint32(64),
	"engram.max_ngram_size":                uint32(2),
	"engram.multipliers":                   []uint64{5, 7},
	"engram.primes":                        []uint64{11, 13},
	"engram.offsets":                       []uint64{0, 11},
	"engram.token_map":                     []int32{0, 1, 2, 2, 3},
	"engram.pad_id":                        uint32(2),
}

// roleTensors are the tensors by which layers have roles.
func roleTensors() map[string]decodertest.Tensor {
	tensors := map[string]decodertest.Tensor{}
	for _, name := range []string{
		"blk.1.attn_compressor_kv.weight", "blk.1.attn_compressor_gate.weight", "blk.1.indexer.attn_k.weight", "blk.1.indexer.attn_q_b.weight",
		"blk.2.attn_compressor_kv.weight", "blk.2.indexer.attn_k.weight", "blk.2.indexer.attn_q_b.weight",
	} {
		tensors[name] = decodertest.Zeros(name, gguf.F32, 8)
	}
	const table = "blk.1.engram_embd.weight"
	tensors[table] = decodertest.Zeros(table, gguf.F32, 64, 24)
	return tensors
}

// readChanged reads a file with changed keys and tensors; an absent tensor is taken away.
func readChanged(t *testing.T, keys map[string]any, tensors ...any) (deepseek41.Config, error) {
	have := roleTensors()
	for _, x := range tensors {
		switch x := x.(type) {
		case string:
			if _, ok := have[x]; ok {
				delete(have, x)
			} else {
				have[x] = decodertest.Zeros(x, gguf.F32, 8)
			}
		case func(map[string]decodertest.Tensor):
			x(have)
		}
	}
	var list []decodertest.Tensor
	for x := range maps.Values(have) {
		list = append(list, x)
	}
	return deepseek41.ReadConfig(decodertest.Header(t, decodertest.Keys("deepseek41", minimalKeys, keys), list...))
}

func table(kind gguf.Type, shape ...int64) func(map[string]decodertest.Tensor) {
	const name = "blk.1.engram_embd.weight"
	return func(have map[string]decodertest.Tensor) { have[name] = decodertest.Zeros(name, kind, shape...) }
}

func TestDefaults(t *testing.T) {
	c, err := readChanged(t, map[string]any{"attention.indexer.top_k": uint32(512)})
	require.NoError(t, err)
	require.Equal(t, []int{2, 2048, 8}, []int{c.Candidates, c.BlocksKept, c.BlockSize})
	require.Equal(t, c.ClampRouted, c.ClampShared)
	c, err = readChanged(t, map[string]any{"engram.pad_id": nil, "engram.pad_token_id": uint32(3), "engram.key_length": nil, "engram.head_dim": uint32(64)})
	require.NoError(t, err)
	require.Equal(t, uint64(2), c.Engram.Pad)
	for _, shape := range [][]int64{{66, 24}, {34, 30}} {
		_, err = readChanged(t, nil, table(gguf.I8, shape...))
		require.NoError(t, err)
	}
}

// TestRefused: each wrong key, role and table is refused with its name.
func TestRefused(t *testing.T) {
	type keys = map[string]any
	for text, x := range map[string]struct {
		keys    keys
		tensors []any
	}{
		"layer 1 has ratio 4; expected 0, 1 or 2":                         {keys{"attention.compress_ratios": []int32{0, 4, 1}}, nil},
		"has 2 values for 3 layers":                                       {keys{"attention.compress_ratios": []int32{0, 2}}, nil},
		"layer 0 has ratio 2, but neither it nor a layer before it":       {keys{"attention.compress_ratios": []int32{2, 2, 1}}, nil},
		"layer 2 has ratio 1, but layer 1, which makes":                   {nil, []any{"blk.2.attn_compressor_kv.weight", "blk.2.indexer.attn_k.weight"}},
		"layer 1 has ratio 2: its compressor must have a gate":            {nil, []any{"blk.1.attn_compressor_gate.weight"}},
		"layer 2 has ratio 1: its compressor must have a gate":            {nil, []any{"blk.2.attn_compressor_gate.weight"}},
		"layer 2 has a compressor (attn_compressor_kv) but no index keys": {nil, []any{"blk.2.indexer.attn_k.weight"}},
		"layer 0 has index keys (indexer.attn_k) but no compressor":       {nil, []any{"blk.0.indexer.attn_k.weight"}},
		"layer 0 has a compressor or an indexer, but its ratio is 0":      {nil, []any{"blk.0.indexer.attn_q_b.weight"}},
		"layer 2 reads the compressed entries of layer 2, but no layer":   {nil, []any{"blk.2.indexer.attn_q_b.weight"}},
		`kv_source_layer_ids" lists layers [1 0]`:                         {keys{"attention.kv_source_layer_ids": []int32{1, 0}}, nil},
		`index_source_layer_ids" lists layers [1]`:                        {keys{"attention.index_source_layer_ids": []int32{1}}, nil},
		`engram.layer_ids" lists layers [2]`:                              {keys{"engram.layer_ids": []int32{2}}, nil},
		"names layer 0, which has no indexer":                             {keys{"attention.candidate_source_layer_id": uint32(0)}, nil},
		"layer 2 would choose within the blocks of layer 1":               {keys{"attention.candidate_source_layer_id": uint32(1)}, nil},
		"2 blocks of 3 entries have no room for the 8":                    {keys{"attention.candidate_topk_blocks": uint32(2), "attention.candidate_block_size": uint32(3)}, nil},
		"hash_layer_count":                {keys{"hash_layer_count": uint32(1)}, nil},
		"expert_gating_func":              {keys{"expert_gating_func": uint32(2)}, nil},
		"head_count_kv":                   {keys{"attention.head_count_kv": uint32(2)}, nil},
		"engram.multipliers\" is missing": {keys{"engram.multipliers": nil}, nil},
		"which do not fit 1 layers, n-grams of up to 2 tokens and 3 heads":     {keys{"engram.head_count": uint32(3)}, nil},
		"engram.token_map\" has 4 values for a vocabulary of 5":                {keys{"engram.token_map": []int32{0, 1, 2, 3}}, nil},
		"engram.token_map\": value 1 is -1":                                    {keys{"engram.token_map": []int32{0, -1, 2, 3, 4}}, nil},
		"engram.token_map\" gives token 1 the id 2147483648, above 2147483647": {keys{"engram.token_map": []uint64{0, 1 << 31, 2, 3, 4}}, nil},
		"engram.offsets\": value 1 is 12; expected 11":                         {keys{"engram.offsets": []uint64{0, 12}}, nil},
		"engram.primes\": value 0 is 0":                                        {keys{"engram.primes": []uint64{0, 13}}, nil},
		"has shape [64 23]; expected at least 24 rows":                         {nil, []any{table(gguf.F32, 64, 23)}},
		"is F32 with rows of 32; expected rows of 64 values":                   {nil, []any{table(gguf.F32, 32, 24)}},
		"is I8 with rows of 65":                                                {nil, []any{table(gguf.I8, 65, 24)}},
		`engram.encoding" is "conversion_underway"`:                            {keys{"engram.encoding": "conversion_underway"}, nil},
		`"lloyd4_e5m3_32_r136", but the rows of tensor`:                        {keys{"engram.encoding": "lloyd4_e5m3_32_r136"}, []any{table(gguf.I8, 66, 24)}},
		`"deepseek41.attention.kv_source_layers" is not known and may change`:  {keys{"attention.kv_source_layers": []int32{1, 2}}, nil},
	} {
		_, err := readChanged(t, x.keys, x.tensors...)
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "test file")
	}
}

// TestEarlyFiles: conversions that name another architecture in some keys are told apart.
func TestEarlyFiles(t *testing.T) {
	kv := decodertest.Keys("deepseek41", minimalKeys, nil)
	kv["deepseek4.engram.layer_ids"] = []int32{1}
	_, err := deepseek41.ReadConfig(decodertest.Header(t, kv))
	require.ErrorContains(t, err, "before 12 September 2026")
}

// TestNoBlocks: a file to draft with is refused.
func TestNoBlocks(t *testing.T) {
	f := decodertest.InMemory(t, small(t))
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	_, err = arch.Open(f, b, decoder.OpenOptions{MaxTokens: 8, DraftFile: f})
	require.ErrorContains(t, err, "has no block for multi-token prediction")
	_, err = arch.Plan(f, decoder.OpenOptions{DraftFile: f}, 1)
	require.ErrorContains(t, err, "has no block for multi-token prediction")
}

// TestPlanOfTables: the tables are no part of the weights in memory.
func TestPlanOfTables(t *testing.T) {
	s := small(t)
	f := decodertest.InMemory(t, s)
	p, err := arch.Plan(f, decoder.OpenOptions{}, 1)
	require.NoError(t, err)
	var tables, all int64
	for _, x := range f.Tensors() {
		all += int64(len(x.Data))
		if x.Name == "blk.1.engram_embd.weight" || x.Name == "blk.2.engram_embd.weight" {
			tables += int64(len(x.Data))
		}
	}
	require.Equal(t, tables, p.Tables)
	require.Equal(t, all, p.Tables+p.Weights()+p.Unread)
	require.Equal(t, 2*3*2, p.TableReads)
	require.Equal(t, int64(2*3*2*64*2), p.TableReadBytes)
}
