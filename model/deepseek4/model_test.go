package deepseek4_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
)

// architecture is what the tests of all architectures run on.
var architecture = decodertest.Architecture{
	Name: "deepseek4", Small: small, Random: randomShape,
	Growths: 2, // to 8192 positions, and to the context
}

// small is a model that has every kind of layer and runs in milliseconds.
func small(t testing.TB) synthetic.Config {
	c := decodertest.Preset(t, "tiny")
	c.Layers, c.Embd, c.Heads, c.HeadDim, c.RotDim = 5, 64, 4, 64, 32
	c.QRank, c.ORank, c.OGroups, c.Window = 32, 32, 2, 24
	c.Experts, c.Used, c.FF, c.HashLayers = 7, 3, 32, 1
	c.IndexHeads, c.IndexDim, c.TopK = 4, 32, 8
	c.Ratios = []int{0, 4, 128, 4, 128}
	c.Types = decodertest.SmallTypes
	return c
}

// randomShape draws a model: the ratio patterns of Pro and Flash and others,
// odd numbers of experts, all the mixes of weight types that rows of 32 and 256
// allow.
func randomShape(t testing.TB, r *rand.Rand) synthetic.Config {
	c := small(t)
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c.Seed = r.Uint64()
	c.Layers = 2 + r.IntN(4)
	c.Ratios = make([]int, c.Layers)
	for i := range c.Ratios {
		c.Ratios[i] = pick(0, 4, 4, 128)
	}
	c.HashLayers = r.IntN(c.Layers)
	c.Embd = pick(32, 96, 256)
	c.OGroups = pick(1, 2, 4)
	c.Heads = c.OGroups * pick(1, 2, 3)
	c.HeadDim, c.IndexDim = pick(32, 64, 96), pick(32, 64)
	c.RotDim = pick(8, 16, 32)
	c.QRank, c.ORank = pick(32, 64), pick(32, 64)
	c.Window = pick(1, 5, 24, 128)
	c.Experts = 1 + r.IntN(40)
	c.Used = 1 + r.IntN(min(c.Experts, 6))
	c.FF = pick(32, 64)
	c.IndexHeads = 1 + r.IntN(5)
	c.TopK = pick(1, 2, 9, 33)
	c.Streams = pick(1, 2, 4, 4)
	decodertest.RandomExperts(r, &c)
	c.Types.Dense = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q8_0, gguf.BF16}[r.IntN(4)]
	c.Types.Aux = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0}[r.IntN(4)]
	return c
}

// TestAliases: a file with the alternative tensor names, or with gate and up
// merged in one tensor, gives the same model.
func TestAliases(t *testing.T) {
	c := small(t)
	ids := decodertest.RandomIDs(rand.New(rand.NewPCG(8, 9)), c.Vocab, 200)
	run := func() [][]float32 {
		m := architecture.OpenOn(t, decodertest.InMemory(t, c), false, deepseek4.Options{MaxTokens: 200})
		return decodertest.Feed(t, m, 1, 0, ids, decodertest.Always(200))
	}
	want := run()
	c.Alias = true
	decodertest.RequireSame(t, want, run(), "aliases")
}

func TestAlone(t *testing.T) { architecture.Alone(t) }

func TestOnRanks(t *testing.T) { architecture.OnRanks(t) }

// TestExactOfWholeModels: the built-in model and two with V4's layer pattern, one of
// them of 1 GB with 256 experts.
func TestExactOfWholeModels(t *testing.T) {
	inside, err := builtin.Open()
	require.NoError(t, err)
	defer inside.Close()
	files := map[string]*gguf.File{"built in": inside, "tiny": decodertest.InMemory(t, decodertest.Preset(t, "tiny"))}
	if testenv.Rest(t, testenv.Full, "small256, a file of 1 GB") {
		files["small256"] = decodertest.OnDisk(t, decodertest.Preset(t, "small256"))
	}
	architecture.ExactOfWholeModels(t, files)
}

// TestEveryTypeOfEveryTensor: the additions to positions take few types.
func TestEveryTypeOfEveryTensor(t *testing.T) {
	testenv.Need(t, testenv.Full, "every type of every tensor")
	c := small(t)
	c.Layers, c.Ratios = 3, []int{0, 4, 128}
	c.Vocab = 300
	c.Embd, c.Heads, c.HeadDim, c.QRank, c.ORank, c.OGroups = 256, 2, 256, 256, 128, 2
	c.Experts, c.Used, c.FF, c.IndexHeads, c.IndexDim, c.TopK, c.Streams = 2, 1, 256, 1, 128, 1, 1
	require.Positive(t, architecture.EveryTypeOfEveryTensor(t, c, "blk.1.attn_compressor_ape.weight"))
}

func TestNonFiniteWeightsAtLoad(t *testing.T) {
	architecture.NonFiniteWeightsAtLoad(t, []string{
		"output_norm.weight", "output_hc_fn.weight", "output_hc_base.weight", "output_hc_scale.weight",
		"blk.1.hc_attn_fn.weight", "blk.1.hc_ffn_base.weight", "blk.1.attn_norm.weight",
		"blk.1.attn_q_a_norm.weight", "blk.1.attn_kv_a_norm.weight", "blk.1.attn_sinks.weight",
		"blk.1.attn_compressor_ape.weight", "blk.1.attn_compressor_norm.weight",
		"blk.1.indexer_compressor_ape.weight", "blk.1.indexer.proj.weight", "blk.1.ffn_norm.weight",
		"blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias",
	}, []string{"token_embd.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q_b.weight"})
}

func FuzzModelFile(f *testing.F) {
	c := small(f)
	c.Layers, c.Ratios, c.Vocab = 3, []int{0, 4, 128}, 300
	architecture.Fuzz(f, c)
}
