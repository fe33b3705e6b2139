package synthetic_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/model/synthetic"
	"ringmaster/model/tokenizer"
)

func preset(t *testing.T, name string) synthetic.Config {
	t.Helper()
	c, err := synthetic.Preset(name)
	require.NoError(t, err)
	return c
}

func file(t *testing.T, c synthetic.Config) []byte {
	t.Helper()
	w, err := c.Writer()
	require.NoError(t, err)
	return gguftest.Bytes(t, w)
}

func open(t *testing.T, c synthetic.Config) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	written, err := c.WriteFile(path)
	require.NoError(t, err)
	f, err := gguf.Open(written.Files[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func tensor(t *testing.T, f *gguf.File, name string) gguf.Tensor {
	t.Helper()
	x, ok := f.Tensor(name)
	require.True(t, ok, name)
	return x
}

func TestSameSeedSameBytes(t *testing.T) {
	c := preset(t, "tiny")
	first := file(t, c)
	require.True(t, bytes.Equal(first, file(t, c)))
	require.Less(t, len(first), 20<<20)
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err := c.WriteFile(path)
	require.NoError(t, err)
	one, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(first, one), "the number of processors shows")
	c.Seed = 2
	require.False(t, bytes.Equal(first, file(t, c)))
}

// With other names and merged matrices the weights are the same.
func TestAliasesHoldTheSameWeights(t *testing.T) {
	plain := preset(t, "tiny")
	plain.LayerUp = map[int]gguf.Type{1: gguf.Q6_K} // stays two tensors
	alias := plain
	alias.Alias = true
	a, b := open(t, plain), open(t, alias)
	same := func(canonical, other string) {
		x, y := tensor(t, a, canonical), tensor(t, b, other)
		require.Equal(t, x.Shape, y.Shape)
		require.True(t, bytes.Equal(x.Data, y.Data), other)
	}
	for canonical, other := range map[string]string{
		"output_hc_fn.weight":                  "hc_head_fn.weight",
		"output_hc_scale.weight":               "hc_head_scale.weight",
		"blk.0.attn_kv.weight":                 "blk.0.attn_kv_latent.weight",
		"blk.0.attn_kv_a_norm.weight":          "blk.0.attn_kv_a_norm.weight",
		"blk.2.attn_compressor_ape.weight":     "blk.2.attn_compress_ape.weight",
		"blk.2.indexer_compressor_kv.weight":   "blk.2.indexer.compress_kv.weight",
		"blk.2.indexer_compressor_norm.weight": "blk.2.indexer.compress_norm.weight",
		"blk.3.exp_probs_b.bias":               "blk.3.exp_probs_b.weight",
		"blk.1.ffn_up_exps.weight":             "blk.1.ffn_up_exps.weight",
	} {
		same(canonical, other)
	}
	gate, up := tensor(t, a, "blk.4.ffn_gate_exps.weight"), tensor(t, a, "blk.4.ffn_up_exps.weight")
	both := tensor(t, b, "blk.4.ffn_gate_up_exps.weight")
	require.Equal(t, []int64{gate.Shape[0], 2 * gate.Shape[1], gate.Shape[2]}, both.Shape)
	expert := len(gate.Data) / plain.Experts
	for e := range plain.Experts {
		require.True(t, bytes.Equal(gate.Data[e*expert:(e+1)*expert], both.Data[2*e*expert:(2*e+1)*expert]), "gate of %d", e)
		require.True(t, bytes.Equal(up.Data[e*expert:(e+1)*expert], both.Data[(2*e+1)*expert:(2*e+2)*expert]), "up of %d", e)
	}
	_, ok := b.Tensor("blk.4.ffn_gate_exps.weight")
	require.False(t, ok)
}

func TestPatternsOfRatios(t *testing.T) {
	c := preset(t, "flash")
	require.Equal(t, []int{0, 0, 4, 128, 4}, c.LayerRatios()[:5])
	require.Len(t, c.LayerRatios(), 43)
	c = preset(t, "pro")
	require.Equal(t, []int{128, 128, 4, 128, 4}, c.LayerRatios()[:5])
	require.Len(t, c.LayerRatios(), 61)
	require.NoError(t, c.SetRatios("0, 128,4"))
	require.Equal(t, []int{0, 128, 4}, c.LayerRatios())
	require.ErrorContains(t, c.SetRatios("0,8"), `"8"`)
	_, err := c.Writer()
	require.ErrorContains(t, err, "3 ratios for 61 layers")
}

// The true shapes are on disk as headers and holes only.
func TestTrueShapes(t *testing.T) {
	for name, want := range map[string]struct {
		experts []int64
		oA      []int64
		topK    uint32
		scale   float32
		giga    int64 // minimum size of the data
	}{
		"flash": {[]int64{4096, 2048, 256}, []int64{4096, 8192}, 512, 1.5, 150},
		"pro":   {[]int64{7168, 3072, 384}, []int64{4096, 16384}, 1024, 2.5, 800},
	} {
		f := open(t, preset(t, name))
		require.Equal(t, want.experts, tensor(t, f, "blk.3.ffn_gate_exps.weight").Shape)
		require.Equal(t, want.oA, tensor(t, f, "blk.3.attn_output_a.weight").Shape)
		k, err := f.RequireUint("deepseek4.attention.indexer.top_k")
		require.NoError(t, err)
		require.EqualValues(t, want.topK, k)
		s, err := f.RequireFloat("deepseek4.expert_weights_scale")
		require.NoError(t, err)
		require.EqualValues(t, want.scale, s)
		norm := tensor(t, f, "blk.3.attn_norm.weight")
		require.NotEqual(t, make([]byte, len(norm.Data)), norm.Data)
		info, err := os.Stat(f.Path())
		require.NoError(t, err)
		require.Greater(t, info.Size(), want.giga<<30)
	}
}

func TestVocabularies(t *testing.T) {
	for _, n := range []int{265, 512, 4096, 129280} {
		c := preset(t, "tiny")
		c.Vocab, c.VocabOnly = n, true
		f := open(t, c)
		tokens, err := f.RequireStrings("tokenizer.ggml.tokens")
		require.NoError(t, err)
		require.Len(t, tokens, n)
		seen := map[string]int{}
		for i, s := range tokens {
			seen[s] = i
		}
		require.Len(t, seen, n, "no token twice")
		require.NotContains(t, tokens, "")
		user := n - 6
		if n > 128828 {
			user = 128803
		}
		require.Equal(t, user, seen["<｜User｜>"])
		merges, err := f.RequireStrings("tokenizer.ggml.merges")
		require.NoError(t, err)
		for _, m := range merges { // a merge makes a token of two tokens
			left, right, ok := strings.Cut(m, " ")
			require.True(t, ok)
			for _, token := range []string{left, right, left + right} {
				_, ok := seen[token]
				require.True(t, ok, "%q of merge %q", token, m)
			}
		}
		if n == 4096 {
			require.Greater(t, len(merges), 500)
		}
	}
	c := preset(t, "tiny")
	for n, want := range map[int]string{264: "n_vocab 264: want at least", 1<<20 + 1: "n_vocab 1048577: want at most 1048576"} {
		c.Vocab = n
		_, err := c.Writer()
		require.ErrorContains(t, err, want)
	}
}

// Each pre-tokenizer gets the markers of its family, at their true ids where there
// is room, and a vocabulary that the tokenizer of the program takes.
func TestPretokenizers(t *testing.T) {
	for pre, want := range map[string]struct {
		vocab, bos, eos int
		ends            string
	}{
		"deepseek-coder": {102400, 100000, 100001, ""},
		"deepseek-llm":   {102400, 100000, 100001, ""},
		"deepseek-v3":    {129280, 0, 1, "<｜User｜>"},
		"glm4":           {154880, 154864, 154863, "<|observation|>"},
		"joyai-llm":      {129280, 0, 1, "<｜User｜>"},
		"kimi-k2":        {163840, 163584, 163586, "[EOS]"},
	} {
		require.Contains(t, synthetic.Pretokenizers(), pre)
		for _, vocab := range []int{600, want.vocab} {
			c := preset(t, "tiny")
			c.Pre, c.Vocab, c.VocabOnly = pre, vocab, true
			tok, err := tokenizer.FromGGUF(open(t, c))
			require.NoError(t, err, pre)
			require.Equal(t, vocab, tok.Size())
			bos, ok := tok.BOS()
			require.True(t, ok)
			eos, ok := tok.EOS()
			require.True(t, ok)
			if vocab == want.vocab {
				require.EqualValues(t, want.bos, bos, pre)
				require.EqualValues(t, want.eos, eos, pre)
			}
			require.Equal(t, []int32{bos, eos}, tok.Encode(tok.Text(bos)+tok.Text(eos), true), pre)
			require.Less(t, len(tok.Encode("the router of the experts", false)), 15, pre)
			if want.ends != "" {
				id, ok := tok.ID(want.ends)
				require.True(t, ok, pre)
				require.True(t, tok.IsEnd(id), pre)
			}
		}
	}
	require.Len(t, synthetic.Pretokenizers(), 6)
	c := preset(t, "tiny")
	c.Pre = "qwen2"
	_, err := c.Writer()
	require.ErrorContains(t, err, `"qwen2": want one of deepseek-coder`)
}

func TestSet(t *testing.T) {
	c := preset(t, "tiny")
	require.NoError(t, c.Set("n_expert", "33"))
	require.NoError(t, c.Set("scale", "2.5"))
	require.Equal(t, 33, c.Experts)
	require.Equal(t, 2.5, c.WeightsScale)
	require.ErrorContains(t, c.Set("n_expert", "0"), "at least 1")
	require.ErrorContains(t, c.Set("scale", "-1"), "a number of at least 0")
	require.ErrorContains(t, c.Set("experts", "1"), "n_expert")
	require.NoError(t, c.Set("n_used", "34"))
	_, err := c.Writer()
	require.ErrorContains(t, err, "n_used 34 is more than n_expert 33")
	require.NoError(t, c.Set("n_used", "2"))
	_, err = c.Writer()
	require.NoError(t, err)
}

func TestTypesByName(t *testing.T) {
	c := preset(t, "tiny")
	require.NoError(t, c.SetExperts("iq2"))
	require.Equal(t, gguf.IQ2XXS, c.Types.Up)
	require.Equal(t, gguf.Q2_K, c.Types.Down)
	require.NoError(t, c.SetExperts("MXFP4"))
	require.Equal(t, gguf.MXFP4, c.Types.Down)
	require.ErrorContains(t, c.SetExperts("q9"), "iq4_xs")
	layers, err := synthetic.ParseLayerTypes("3=q6_k, 4=mxfp4")
	require.NoError(t, err)
	require.Equal(t, map[int]gguf.Type{3: gguf.Q6_K, 4: gguf.MXFP4}, layers)
	_, err = synthetic.ParseLayerTypes("3")
	require.ErrorContains(t, err, "LAYER=TYPE")
	c.LayerDown = map[int]gguf.Type{6: gguf.Q6_K}
	_, err = c.Writer()
	require.ErrorContains(t, err, "layer 6 of 6")
	c.LayerDown = nil
	c.Types.Dense = gguf.Q4_K // q_lora is 128
	_, err = c.Writer()
	require.ErrorContains(t, err, "attn_q_b.weight")
	require.ErrorContains(t, err, "block of 256")
}

func TestSplit(t *testing.T) {
	c := preset(t, "tiny")
	whole := open(t, c)
	c.Parts = 3
	parts := open(t, c)
	x, y := tensor(t, whole, "blk.5.ffn_down_exps.weight"), tensor(t, parts, "blk.5.ffn_down_exps.weight")
	require.Equal(t, 2, y.Part)
	require.True(t, bytes.Equal(x.Data, y.Data))
}
