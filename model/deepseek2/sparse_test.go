package deepseek2_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek2"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// sparse is what the tests of all architectures run on once more, with an indexer.
var sparse = decodertest.Architecture{
	Name: "glm-dsa", Small: smallSparse, Random: randomSparse,
	Growths: architecture.Growths,
}

// smallSparse is small with indexers in the first three layers. Its tokens read 12
// positions.
func smallSparse(t testing.TB) synthetic.Config {
	c := small(t)
	require.NoError(t, c.SetArch("glm-dsa"))
	c.IndexHeads, c.IndexDim, c.TopK, c.Latent.IndexEvery = 3, 32, 12, 3
	return c
}

// randomSparse draws the architecture and the indexer too.
func randomSparse(t testing.TB, r *rand.Rand) synthetic.Config {
	c := randomShape(t, r)
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	require.NoError(t, c.SetArch([]string{"deepseek32", "glm-dsa"}[r.IntN(2)]))
	c.QRank, c.RotDim = max(c.QRank, 32), min(c.RotDim, 16)
	c.IndexHeads, c.IndexDim, c.TopK = pick(1, 3, 8, 64), pick(16, 64, 128), pick(1, 5, 20, 31)
	if c.Arch == "glm-dsa" {
		c.Latent.IndexEvery = r.IntN(4)
	} else if c.Latent.Gating == 0 { // which V3.2's must say
		c.Latent.Gating = 2
	}
	return c
}

// TestSparse runs the tests of all architectures: first those in which the keys and the
// choice of an indexer take part by themselves.
func TestSparse(t *testing.T) {
	sparse.Some(t, "StepLeavesNoTrace", "SequencesDoNotMix", "RestoreOnRanks", "ExactOnAnyRanks", "RowsOnAnyRanks",
		"PredictionBlocks", "UnknownTensors")
	if !testenv.Rest(t, testenv.Full, "all types, chunks and shapes, budgets, refusals and epochs") {
		return
	}
	sparse.Some(t, "FlushesAreWhereTheyMustBe", "NonFiniteRowsStayAlone", "RestoreRefuses", "SequenceBudget", "BuffersOfRanks",
		"GroupFlushes", "SequencesOutliveTheirGroup", "Epochs", "ChunksAndThreads", "AgreesWithReference", "RestoreIsNeverLeft",
		"RestoreContinues", "ExactOfRandomShapes", "SumOnAnyRanks", "RowsOfRandomShapes")
	t.Run("WholeModels", sparseWholeModels)
	t.Run("Types", sparseTypes)
	if !testenv.Rest(t, testenv.Exhaustive, "what does not depend on an indexer") {
		return
	}
	sparse.Some(t, "Wants", "ReduceExact", "StepErrors", "OverflowOnRanks", "DigestSees", "Prepare", "StatsFromOutside", "OverTCP",
		"SequenceBytes", "RowsOverflow")
}

// sparseWholeModels: the small models of each kind are exact on ranks.
func sparseWholeModels(t *testing.T) {
	files := map[string]*gguf.File{}
	for _, name := range []string{"v32-tiny", "glm5-tiny"} {
		files[name] = decodertest.InMemory(t, decodertest.Preset(t, name))
	}
	sparse.ExactOfWholeModels(t, files)
}

// sparseTypes tries every type of the indexer's matrices.
func sparseTypes(t *testing.T) {
	c := smallSparse(t)
	c.Layers, c.Vocab, c.Embd, c.Heads, c.QRank, c.TopK = 2, 300, 256, 2, 256, 5
	c.Experts, c.Used, c.FF, c.Latent.Groups, c.Latent.GroupsUsed = 3, 1, 256, 0, 0
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.DenseFF = 256, 256, 256, 256
	sparse.EveryTypeOfEveryTensor(t, c, "blk.1.indexer.attn_q_b.weight", "blk.1.indexer.attn_k.weight", "blk.1.indexer.proj.weight")
}

func TestSparseNonFiniteWeightsAtLoad(t *testing.T) {
	sparse.NonFiniteWeightsAtLoad(t, []string{"blk.0.indexer.k_norm.weight", "blk.1.indexer.k_norm.bias"}, []string{"blk.1.attn_k_b.weight"})
}

func FuzzSparseFile(f *testing.F) {
	c := smallSparse(f)
	c.Layers, c.Vocab, c.TopK, c.Latent.IndexEvery = 3, 300, 6, 2
	sparse.Fuzz(f, c)
}

// families calls test with a small model of each architecture. Its tokens read topK
// positions.
func families(t *testing.T, topK int, test func(t *testing.T, c synthetic.Config)) {
	for _, arch := range []string{"deepseek32", "glm-dsa"} {
		c := smallSparse(t)
		require.NoError(t, c.SetArch(arch))
		if c.TopK = topK; arch == "deepseek32" {
			c.Latent.IndexEvery = 0
		}
		t.Run(arch, func(t *testing.T) { test(t, c) })
	}
}

// TestSparseIsDenseBelowTopK: as long as no token sees more positions than it reads, a
// file gives the bits of the same weights without an indexer, on one rank and on ranks
// that divide the heads; so do the first tokens of a chunk in which later ones see more.
func TestSparseIsDenseBelowTopK(t *testing.T) {
	families(t, 48, func(t *testing.T, c synthetic.Config) {
		dense := c
		require.NoError(t, dense.SetArch("deepseek2"))
		r := rand.New(rand.NewPCG(95, 96))
		ids := decodertest.RandomIDs(r, c.Vocab, 100)
		want := logits(t, dense, ids, 50)
		for _, n := range []int{1, 30, 100} {
			got := logits(t, c, ids, n)
			decodertest.RequireSame(t, want[:c.TopK], got[:c.TopK], fmt.Sprint("chunks of ", n))
			for i := c.TopK + 10; i < len(ids); i++ {
				require.NotEqual(t, want[i], got[i], "token %d", i)
			}
		}

		steps := decodertest.History(r, c.Vocab) // of fewer than TopK positions
		o := deepseek2.Options{MaxTokens: 48, Reduce: parallel.Exact}
		alone := architecture.PlayAlone(t, decodertest.InMemory(t, dense), o, steps)
		all := sparse.OpenAll(t, decodertest.InMemory(t, c), 3, false, o)
		all.Join(t, parallel.ShareAll, []float64{1, 2, 1})
		decodertest.RequireSame(t, alone, all.Play(t, steps), "ranks")
	})
}

// TestSparseChunks: chunks of any size give the same bits across the length from which
// on the indexer chooses, with another sequence in the same step that is still short.
func TestSparseChunks(t *testing.T) {
	families(t, 24, func(t *testing.T, c synthetic.Config) {
		ids := decodertest.RandomIDs(rand.New(rand.NewPCG(97, 98)), c.Vocab, 120)
		want := logits(t, c, ids, 120)
		for _, n := range []int{1, 7, 24, 25} {
			decodertest.RequireSame(t, want, logits(t, c, ids, n), fmt.Sprint("chunks of ", n))
		}
		m := sparse.OpenOn(t, decodertest.InMemory(t, c), true, deepseek2.Options{MaxTokens: 32})
		var got [][]float32
		for at := 0; at < len(ids); at += 20 {
			step := model.Step{Entries: []model.Entry{
				{Seq: model.SeqID(2 + at), Tokens: ids[:9]}, {Seq: 1, Pos: at, Tokens: ids[at : at+20], Want: model.WantAll}}}
			rows, err := m.Forward(t.Context(), step)
			require.NoError(t, err)
			for _, row := range rows {
				got = append(got, slices.Clone(row))
			}
			m.Commit(step)
		}
		decodertest.RequireSame(t, want, got, "in company")
	})
}

// sparseKeys are the keys of an indexer beside those of minimal.
func sparseKeys(arch string, change map[string]any) map[string]any {
	kv := map[string]any{"attention.indexer.head_count": uint32(3), "attention.indexer.key_length": uint32(32), "attention.indexer.top_k": uint32(20)}
	maps.Copy(kv, change)
	return minimalOf(arch, kv)
}

// TestSparseConfig: what the families differ in, and what files leave out.
func TestSparseConfig(t *testing.T) {
	read := func(arch string, change map[string]any) deepseek2.Config {
		return configOf(t, sparseKeys(arch, change))
	}
	c := read("deepseek32", nil)
	require.Equal(t, deepseek2.Index{TopK: 20, Heads: 3, Dim: 32, Full: []bool{true, true, true}, Halves: true}, c.Index)
	require.Equal(t, kernels.Softmax, read("deepseek32", map[string]any{"expert_gating_func": uint32(1)}).Score)
	c = read("glm-dsa", map[string]any{"expert_gating_func": nil})
	require.Equal(t, deepseek2.Index{TopK: 20, Heads: 3, Dim: 32, Full: []bool{true, true, true}}, c.Index)
	require.Equal(t, kernels.Sigmoid, c.Score)
	listed := read("glm-dsa", map[string]any{"attention.indexer.types": []bool{true, false, true, false, true}})
	require.Equal(t, []bool{true, false, true}, listed.Index.Full, "more than there are layers")

	// GLM-5.2 is told by its context.
	long := map[string]any{"block_count": uint32(11), "context_length": uint32(1 << 20)}
	require.Equal(t, []bool{true, true, true, false, false, false, true, false, false, false, true}, read("glm-dsa", long).Index.Full)
	require.NotContains(t, read("deepseek32", long).Index.Full, false)
	long["context_length"] = uint32(1<<20 - 1)
	require.NotContains(t, read("glm-dsa", long).Index.Full, false)
	require.Zero(t, configOf(t, minimal(nil)).Index)
}

// TestSparseConfigErrors: each error names its key.
func TestSparseConfigErrors(t *testing.T) {
	keys := func(change map[string]any) map[string]any { return sparseKeys("glm-dsa", change) }
	decodertest.Refuses(t, deepseek2.ReadConfig, keys, map[string]map[string]any{
		`"glm-dsa.attention.indexer.top_k" is missing`:            {"attention.indexer.top_k": nil},
		`"glm-dsa.attention.indexer.head_count" is 0`:             {"attention.indexer.head_count": uint32(0)},
		`"glm-dsa.attention.indexer.key_length" is 24; expected`:  {"attention.indexer.key_length": uint32(24)},
		`"glm-dsa.attention.indexer.key_length" is 8; expected`:   {"attention.indexer.key_length": uint32(8)},
		"boolean for each of the 3 layers":                        {"attention.indexer.types": []bool{true, false}},
		`"glm-dsa.attention.indexer.types" must have`:             {"attention.indexer.types": []uint32{1, 0, 0}},
		"the first layer needs an indexer":                        {"attention.indexer.types": []bool{false, true, true}},
		`key "glm-dsa.attention.indexer.block_size" is not known`: {"attention.indexer.block_size": uint32(4)},
		`key "glm-dsa.attention.sinks" is not known`:              {"attention.sinks": uint32(1)},
	})
	_, err := deepseek2.ReadConfig(decodertest.Header(t, sparseKeys("deepseek32", map[string]any{"expert_gating_func": nil})))
	require.ErrorContains(t, err, `key "deepseek32.expert_gating_func" must be 1`, "no engine says what its absence means")
	// Keys of an indexer in a file of an architecture without one.
	_, err = deepseek2.ReadConfig(decodertest.Header(t, minimal(map[string]any{"attention.indexer.top_k": uint32(20)})))
	require.ErrorContains(t, err, `key "deepseek2.attention.indexer.top_k" is not known`)
}

// TestSparseLoadErrors: what is missing or wrong of the indexers. A layer without one may
// have its tensors.
func TestSparseLoadErrors(t *testing.T) {
	f := decodertest.Header(t, sparseKeys("glm-dsa", map[string]any{"attention.indexer.types": []bool{true, true, false}}),
		decodertest.Zeros("blk.0.attn_k_b.weight", gguf.F16, 32, 64, 4),
		decodertest.Zeros("blk.0.indexer.attn_k.weight", gguf.F16, 64, 33),
		decodertest.Zeros("blk.0.indexer.k_norm.bias", gguf.F32, 31),
		decodertest.Zeros("blk.1.indexer.something.weight", gguf.F32, 31),
		decodertest.Zeros("blk.2.indexer.attn_k.weight", gguf.F16, 64, 1),
	)
	err := architecture.OpenFails(t, f,
		`tensor "blk.0.indexer.attn_k.weight" has shape [64 33]; expected [64 32 1]`,
		`tensor "blk.0.indexer.k_norm.bias" has shape [31]; expected 32 elements`,
		`tensor "blk.0.indexer.proj.weight" is missing`,
		`tensor "blk.0.indexer.attn_q_b.weight" is missing, and that of 1 more layer`,
		`tensor "blk.1.indexer.something.weight" is not part of this architecture`,
	)
	require.NotContains(t, err.Error(), "blk.2.indexer")
}
