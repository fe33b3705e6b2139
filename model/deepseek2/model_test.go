package deepseek2_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek2"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// architecture is what the tests of all architectures run on.
var architecture = decodertest.Architecture{
	Name: "deepseek2", Small: small, Random: randomShape,
	Growths: 5, // to 512 positions, 1024 and so on to 8192, and to the context
}

// small is a model with a leading layer and layers with groups of experts, that runs in
// milliseconds.
func small(t testing.TB) synthetic.Config {
	c := decodertest.Preset(t, "ds2-tiny")
	c.Layers, c.Embd, c.Heads, c.RotDim, c.QRank = 4, 64, 4, 16, 32
	c.Experts, c.Used, c.FF, c.Shared = 9, 3, 32, 4 // so that four ranks have a part of the shared expert
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 1, 128, 3, 2
	c.Types = decodertest.SmallTypes
	return c
}

// randomShape draws a model: any number of leading layers, with and without a low rank of
// queries, shared experts, groups, bias, norm and YaRN, both formats, odd widths, all the
// mixes of weight types that rows of 32 and 256 allow.
func randomShape(t testing.TB, r *rand.Rand) synthetic.Config {
	c := small(t)
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c.Seed = r.Uint64()
	c.Layers = 2 + r.IntN(3)
	c.Embd, c.FF = pick(32, 96, 256), pick(32, 64)
	c.Heads, c.RotDim, c.QRank = pick(1, 2, 3, 4, 5, 6, 8), pick(2, 8, 16, 64), pick(0, 32, 64)
	c.Shared, c.WeightsScale, c.RMSEps = pick(0, 1, 2, 4), []float64{0, 1, 2.5}[r.IntN(3)], []float64{1e-6, 1e-5}[r.IntN(2)]
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Split = pick(32, 64, 96, 256), pick(32, 64, 96), pick(32, 64, 96), pick(0, 1)
	l.Dense, l.DenseFF = r.IntN(c.Layers), pick(32, 96, 128, 160, 256)
	l.Gating, l.Bias, l.Norm, l.Groups = pick(0, 1, 2, 2), pick(0, 1), pick(0, 1), pick(0, 1, 2, 3, 4, 8)
	if l.Gating == 0 {
		l.Bias = 0 // biases without the key are refused
	}
	group := 2 + r.IntN(6)
	c.Experts, c.Used, l.GroupsUsed = group*max(1, l.Groups), 1+r.IntN(group), l.Groups
	if l.Groups > 1 {
		l.GroupsUsed = 1 + r.IntN(l.Groups)
		c.Used = 1 + r.IntN(min(6, l.GroupsUsed*group))
	}
	c.RopeBase, c.YaRNFactor, c.YaRNContext = []float64{10000, 50000}[r.IntN(2)], float64(pick(0, 4, 40)), pick(64, 4096)
	l.YaRNLog, l.BetaFast, l.BetaSlow = []float64{0.0707, 0.1}[r.IntN(2)], float64(pick(0, 1, 32)), float64(pick(0, 1))
	decodertest.RandomExperts(r, &c)
	c.Types.Dense = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q8_0, gguf.BF16, gguf.F16, gguf.Q5_0, gguf.IQ4NL}[r.IntN(7)]
	c.Types.Aux = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16}[r.IntN(3)]
	return c
}

func TestAlone(t *testing.T) { architecture.Alone(t, "SequenceBytes", "RandomForks") }

func TestOnRanks(t *testing.T) { architecture.OnRanks(t, "SumOnAnyRanks") }

// TestExactOfWholeModels: the small models of each kind, and one of 1 GB with 256 experts
// in 8 groups.
func TestExactOfWholeModels(t *testing.T) {
	files := map[string]*gguf.File{}
	names := []string{"ds2-tiny"}
	if testenv.Rest(t, testenv.Full, "k2-tiny, ds2lite-tiny and glm-tiny") {
		names = append(names, "k2-tiny", "ds2lite-tiny", "glm-tiny")
	}
	for _, name := range names {
		files[name] = decodertest.InMemory(t, decodertest.Preset(t, name))
	}
	if testenv.Rest(t, testenv.Full, "small-v3, a file of 1 GB") {
		files["small-v3"] = decodertest.OnDisk(t, decodertest.Preset(t, "small-v3"))
	}
	architecture.ExactOfWholeModels(t, files)
}

// TestEveryTypeOfEveryTensor covers files of both formats.
func TestEveryTypeOfEveryTensor(t *testing.T) {
	testenv.Need(t, testenv.Full, "every type of every tensor")
	for split, all := range []string{"blk.1.attn_kv_b.weight", "blk.1.attn_k_b.weight"} {
		t.Run(all, func(t *testing.T) {
			c := small(t)
			c.Layers, c.Vocab, c.Embd, c.Heads, c.QRank = 2, 300, 256, 2, 256
			c.Experts, c.Used, c.FF = 3, 1, 256
			l := &c.Latent
			l.Rank, l.Nope, l.Value, l.DenseFF, l.Split = 256, 256, 256, 256, split
			architecture.EveryTypeOfEveryTensor(t, c, all)
		})
	}
}

func TestNonFiniteWeightsAtLoad(t *testing.T) {
	testenv.Need(t, testenv.Full, "weights that are not finite, which deepseek4 tests too")
	architecture.NonFiniteWeightsAtLoad(t, []string{
		"output_norm.weight", "blk.0.attn_norm.weight", "blk.1.attn_q_a_norm.weight", "blk.1.attn_kv_a_norm.weight",
		"blk.1.ffn_norm.weight", "blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias",
	}, []string{"token_embd.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_k_b.weight"})
}

func FuzzModelFile(f *testing.F) {
	c := small(f)
	c.Layers, c.Vocab = 2, 300
	architecture.Fuzz(f, c)
}

func FuzzMergedFile(f *testing.F) {
	c := small(f)
	c.Layers, c.Vocab, c.QRank, c.Latent.Split = 2, 300, 0, 0
	architecture.Fuzz(f, c)
}

// logits are those of ids, in chunks of n, on one thread.
func logits(t testing.TB, c synthetic.Config, ids []int32, n int) [][]float32 {
	m := architecture.OpenOn(t, decodertest.InMemory(t, c), false, deepseek2.Options{MaxTokens: n})
	return decodertest.Feed(t, m, 1, 0, ids, decodertest.Always(n))
}

// TestBothFormats: attn_kv_b gives the bits of attn_k_b and attn_v_b with the same numbers,
// also on ranks that divide the heads.
func TestBothFormats(t *testing.T) {
	f32 := gguf.F32
	for i, change := range []func(c *synthetic.Config){
		func(*synthetic.Config) {},
		func(c *synthetic.Config) { c.QRank, c.Heads, c.Latent.Nope, c.Latent.Value = 0, 5, 48, 20 },
	} {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			c := small(t)
			change(&c)
			c.Types.Dense = f32
			r := rand.New(rand.NewPCG(91, 92))
			ids := decodertest.RandomIDs(r, c.Vocab, 150)
			steps := decodertest.History(r, c.Vocab)
			merged := c
			merged.Latent.Split = 0
			decodertest.RequireSame(t, logits(t, c, ids, 70), logits(t, merged, ids, 70), "attn_kv_b")

			o := deepseek2.Options{MaxTokens: 48, Reduce: parallel.Exact}
			want := architecture.PlayAlone(t, decodertest.InMemory(t, c), o, steps)
			all := architecture.OpenAll(t, decodertest.InMemory(t, merged), 3, false, o)
			all.Join(t, parallel.ShareAll, []float64{1, 2, 1})
			decodertest.RequireSame(t, want, all.Play(t, steps), "attn_kv_b on ranks")
		})
	}
}

// TestRewindsAnywhere: a sequence can be rewound to any position, because every row is
// kept, and continues as one that was never longer.
func TestRewindsAnywhere(t *testing.T) {
	t.Run("dense", func(t *testing.T) { rewindsAnywhere(t, small(t)) })
	t.Run("sparse", func(t *testing.T) { rewindsAnywhere(t, smallSparse(t)) })
}

func rewindsAnywhere(t *testing.T, c synthetic.Config) {
	f := decodertest.InMemory(t, c)
	o := deepseek2.Options{MaxTokens: 64}
	r := rand.New(rand.NewPCG(93, 94))
	m := architecture.OpenOn(t, f, false, o)
	ids := decodertest.RandomIDs(r, c.Vocab, 600)
	decodertest.Feed(t, m, 1, 0, ids, decodertest.Always(64))
	for id, pos := range []int{599, 257, 256, 255, 64, 1, 0} {
		ids = append(ids[:pos:pos], decodertest.RandomIDs(r, c.Vocab, 40)...)
		got := decodertest.Feed(t, m, 1, pos, ids[pos:], decodertest.Always(17))
		require.Equal(t, len(ids), m.Len(1))
		fresh := model.SeqID(10 + id)
		want := decodertest.Feed(t, m, fresh, 0, ids, decodertest.Always(64))[pos:]
		decodertest.RequireSame(t, want, got, fmt.Sprint("from ", pos))
	}
}

// TestTrueShapes: the header and the tensors of every preset are what the package expects,
// at the sizes of the released models; the numbers are holes.
func TestTrueShapes(t *testing.T) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	for _, name := range synthetic.Presets() {
		c := decodertest.Preset(t, name)
		if c.Arch == "deepseek4" || c.Arch == "deepseek41" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if name != "v3" {
				testenv.Need(t, testenv.Full, "the shapes of this preset")
			}
			c.Holes = true
			f := decodertest.OnDisk(t, c)
			plan, err := deepseek2.NewPlan(f, deepseek2.Options{Context: 4096, MaxTokens: 16}, 2)
			require.NoError(t, err)
			m, err := deepseek2.Open(f, b, deepseek2.Options{Context: 4096, MaxTokens: 16})
			require.NoError(t, err)
			require.Equal(t, plan.Sizes, m.Sizes())
			require.Equal(t, plan.PerSequence(), m.SequenceBytes(4096))
			require.Equal(t, c.Layers, m.Info().Layers)
			require.NoError(t, m.Close())
		})
	}
}
