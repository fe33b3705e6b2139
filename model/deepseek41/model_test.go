package deepseek41_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek41"
	"ringmaster/model/synthetic"
)

// architecture is what the tests of all architectures run on.
var architecture = decodertest.Architecture{
	Name: "deepseek41", Small: small, Random: randomShape,
	Growths: 2, // to 8192 positions, and to the context
	NoBlock: true,
}

// small is a model that has every kind of layer and runs in milliseconds: window only, with
// engram, a source of ratio 2 with engram, its reader, a source of ratio 1 that keeps blocks,
// a reader, an index within the blocks, its reader.
func small(t testing.TB) synthetic.Config {
	c := decodertest.Preset(t, "v41-tiny")
	c.Layers, c.Embd, c.Heads, c.HeadDim, c.RotDim = 8, 64, 4, 64, 32
	c.QRank, c.ORank, c.OGroups, c.Window = 32, 32, 2, 24
	c.Experts, c.Used, c.FF = 7, 3, 32
	c.IndexHeads, c.IndexDim, c.TopK = 4, 32, 8
	c.Ratios = []int{0, 0, 2, 2, 1, 1, 1, 1}
	e := &c.Engram
	e.Sources, e.Indexes, e.At = []int{2, 4}, []int{2, 4, 6}, []int{1, 2}
	e.Kept, e.Size, e.Width, e.LeastPrime, e.Table = 4, 4, 64, 50, gguf.F16
	c.Types = decodertest.SmallTypes
	return c
}

// randomShape draws a model: any roles of layers, odd numbers of experts, all the mixes of
// weight types that rows of 32 and 256 allow.
func randomShape(t testing.TB, r *rand.Rand) synthetic.Config {
	c := small(t)
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c.Seed = r.Uint64()
	c.Layers = 2 + r.IntN(6)
	randomRoles(r, &c)
	c.Embd = pick(32, 96, 256)
	c.OGroups = pick(1, 2, 4)
	c.Heads = c.OGroups * pick(1, 2, 3)
	c.HeadDim, c.IndexDim = pick(32, 64, 96), pick(32, 64)
	c.RotDim = pick(8, 16, 32)
	c.QRank, c.ORank = pick(32, 64), pick(32, 64)
	c.Window = pick(1, 5, 24, 128)
	c.Experts = 1 + r.IntN(40)
	c.Used = min(c.Experts, 2+r.IntN(5)) // with a single one a near tie changes all of an output
	c.FF = pick(32, 64)
	c.IndexHeads = 1 + r.IntN(5)
	c.TopK = pick(1, 2, 9, 33)
	c.Streams = pick(1, 2, 4, 4)
	e := &c.Engram
	e.Size = pick(1, 3, 8)
	e.Kept = (c.TopK+e.Size-2)/e.Size + 1 + r.IntN(3)
	e.Gram, e.Heads, e.Width, e.LeastPrime = 2+r.IntN(3), 1+r.IntN(3), pick(32, 64), pick(3, 40)
	decodertest.RandomExperts(r, &c)
	e.Table = []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.MXFP4}[r.IntN(4)]
	c.Types.Dense = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q8_0, gguf.BF16}[r.IntN(4)]
	c.Types.Aux = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0}[r.IntN(4)]
	return c
}

// randomRoles draws ratios, sources, indexes and engram layers. Indexes from the first of
// ratio 1 on read the entries of one source, because they choose within its blocks.
func randomRoles(r *rand.Rand, c *synthetic.Config) {
	e := &c.Engram
	c.Ratios, e.Sources, e.Indexes, e.At = nil, nil, nil, nil
	source, last := -1, false // last: no later layer may be a source
	for i := range c.Layers {
		if r.IntN(3) == 0 {
			e.At = append(e.At, i)
		}
		switch {
		case source < 0 && r.IntN(2) == 0:
			c.Ratios = append(c.Ratios, 0)
		case source < 0 || !last && r.IntN(3) == 0:
			source = i
			c.Ratios = append(c.Ratios, 1+r.IntN(2))
			e.Sources, e.Indexes = append(e.Sources, i), append(e.Indexes, i)
			last = c.Ratios[i] == 1
		default:
			c.Ratios = append(c.Ratios, c.Ratios[source])
			if r.IntN(3) == 0 {
				e.Indexes = append(e.Indexes, i)
			}
		}
	}
}

func TestAlone(t *testing.T) { architecture.Alone(t) }

func TestOnRanks(t *testing.T) { architecture.OnRanks(t) }

func TestStaircase(t *testing.T) { architecture.Staircase(t) }

func TestStaircaseOnRanks(t *testing.T) { architecture.StaircaseOnRanks(t) }

func TestStaircaseLeavesOut(t *testing.T) {
	c := small(t)
	architecture.StaircaseLeavesOut(t, c, 4, c.Window)
}

func TestReplay(t *testing.T) { architecture.Replay(t) }

func TestReplayOnRanks(t *testing.T) { architecture.ReplayOnRanks(t) }

func TestReplayLeavesOut(t *testing.T) {
	c := small(t)
	architecture.ReplayLeavesOut(t, c, c.Window)
}

// TestReplayOfTrueShape: what V4.1 Flash leaves out and runs again, of its header; the numbers
// are holes.
func TestReplayOfTrueShape(t *testing.T) {
	c := decodertest.Preset(t, "v41")
	c.Holes = true
	f := decodertest.OnDisk(t, c)
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	m, err := deepseek41.Open(f, b, deepseek41.Options{Context: 8192, MaxTokens: 16})
	require.NoError(t, err)
	require.Equal(t, 1+64+127*20, m.Info().Tail)
	require.Equal(t, 1+64+127*40+3, m.Info().Replay)
	require.NoError(t, m.Close())
}

func TestEveryTypeOfEveryTensor(t *testing.T) {
	testenv.Need(t, testenv.Full, "every type of every tensor")
	c := small(t)
	c.Layers, c.Ratios = 3, []int{0, 2, 1}
	e := &c.Engram
	e.Sources, e.Indexes, e.At = []int{1, 2}, []int{1, 2}, []int{0}
	e.Gram, e.Heads, e.Width = 2, 1, 256
	c.Vocab = 300
	c.Embd, c.Heads, c.HeadDim, c.QRank, c.ORank, c.OGroups = 256, 2, 256, 256, 128, 2
	c.Experts, c.Used, c.FF, c.IndexHeads, c.IndexDim, c.TopK, c.Streams = 2, 1, 256, 1, 128, 1, 1
	require.Zero(t, architecture.EveryTypeOfEveryTensor(t, c))
}

func TestNonFiniteWeightsAtLoad(t *testing.T) {
	architecture.NonFiniteWeightsAtLoad(t, []string{
		"output_norm.weight", "blk.1.hc_attn_fn.weight", "blk.1.hc_ffn_base.weight", "blk.1.attn_norm.weight",
		"blk.1.attn_q_a_norm.weight", "blk.1.attn_kv_a_norm.weight", "blk.1.attn_sinks.weight",
		"blk.2.attn_compressor_norm.weight", "blk.2.indexer.k_norm.weight", "blk.2.indexer.proj.weight",
		"blk.1.engram_q.weight", "blk.1.engram_k.weight", "blk.1.ffn_norm.weight",
		"blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias",
	}, []string{"token_embd.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q_b.weight"})
}

func FuzzModelFile(f *testing.F) {
	c := small(f)
	c.Vocab = 300
	architecture.Fuzz(f, c)
}
