package exact_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/exact"
)

// TestOursOnRandomShapes compares our logits with the float64 forward pass that is given
// the experts which ours chose: what remains is the rounding of the KV cache to float16
// and of activations to 15 bits. Where ours chose other experts than float64 would have,
// the scores were tied within that rounding.
func TestOursOnRandomShapes(t *testing.T) {
	onShapes(t, 3, 8, 40, 61, func(t *testing.T, _ *rand.Rand, c synthetic.Config, ids func(int) []int) { ours(t, c, ids(c.Vocab)) })
}

// TestOursOfSparseShapes does the same of models with an indexer, of both families; it is
// given the positions too. Attention that reads everything is far off.
func TestOursOfSparseShapes(t *testing.T) {
	onShapes(t, 2, 4, 60, 63, func(t *testing.T, r *rand.Rand, c synthetic.Config, draw func(int) []int) {
		c, err := exact.Sparse(r, c)
		require.NoError(t, err)
		ids := draw(c.Vocab)
		got := ours(t, c, ids)
		c.TopK = len(ids)
		dense, err := exact.Ours(t.Context(), open(t, c), ids)
		require.NoError(t, err)
		far, _ := exact.Distance(dense.Logits, got.Logits)
		require.Greater(t, far, 20*farthest)
	})
}

// onShapes runs a check on random shapes, with a function that draws the tokens. In the
// full form it takes more shapes and longer sequences.
func onShapes(t *testing.T, shapes, more, tokens int, seed uint64, check func(*testing.T, *rand.Rand, synthetic.Config, func(vocab int) []int)) {
	if testenv.Rest(t, testenv.Full, "more shapes and longer sequences") {
		shapes, tokens = more, 120
		if testenv.Rest(t, testenv.Exhaustive, "twice as many shapes") {
			shapes *= 2
		}
	}
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), seed))
			c, err := exact.Random(r, false)
			require.NoError(t, err)
			check(t, r, c, func(vocab int) []int { return exact.RandomIDs(r, tokens, vocab) })
		})
	}
}

// ours compares our logits with those of float64 that is given what ours chose.
func ours(t *testing.T, c synthetic.Config, ids []int) exact.Run {
	f := open(t, c)
	got, err := exact.Ours(t.Context(), f, ids)
	require.NoError(t, err)
	want, err := exact.Forward(f, ids, exact.Rounding{}, &got)
	require.NoError(t, err)
	far, same := exact.Distance(got.Logits, want.Logits)
	t.Logf("%s: relrms %.6f, %.1f %% same argmax, regret %.6f, of positions %.6f", c.Arch, far, 100*same, want.Regret, want.ReadRegret)
	require.LessOrEqual(t, far, farthest)
	require.LessOrEqual(t, want.Regret, tie)
	require.LessOrEqual(t, want.ReadRegret, tie)
	return got
}

// TestYaRNWithoutMultiplier: cos and sin have another magnitude then, in attention and in
// the indexer, and the logits are far from those with a multiplier.
func TestYaRNWithoutMultiplier(t *testing.T) {
	for i := range uint64(2) {
		r := rand.New(rand.NewPCG(i, 67))
		c, err := exact.Random(r, false)
		require.NoError(t, err)
		if i > 0 {
			c, err = exact.Sparse(r, c)
			require.NoError(t, err)
		}
		c.YaRNFactor, c.Latent.YaRNLog = 40, 0
		ids := exact.RandomIDs(r, 60, c.Vocab)
		got := ours(t, c, ids)
		c.Latent.YaRNLog = 0.1
		with, err := exact.Ours(t.Context(), open(t, c), ids)
		require.NoError(t, err)
		far, _ := exact.Distance(with.Logits, got.Logits)
		require.Greater(t, far, 20*farthest)
	}
}

const (
	// farthest is what rounding alone moves logits by: 0.0001 to 0.0004 in all shapes
	// seen.
	farthest = 0.001
	// tie is the difference of scores within which rounding may decide.
	tie = 0.002
)

// TestForcedExperts checks that choices which are not those of float64 are seen: the
// regret of the right experts is none, and that of others is large.
func TestForcedExperts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 62))
	c, err := exact.Random(r, true)
	require.NoError(t, err)
	forced(t, c, exact.RandomIDs(r, 12, c.Vocab), func(run *exact.Run) {
		last := run.Chosen[len(run.Chosen)-1][5]
		for e := range c.Experts {
			if e != last[0] && (len(last) < 2 || e < last[1]) {
				last[0] = e
				break
			}
		}
	}, func(run exact.Run) float64 { return run.Regret })
}

// TestForcedPositions checks the same of positions that tokens read.
func TestForcedPositions(t *testing.T) {
	c, err := synthetic.Preset("v32-tiny")
	require.NoError(t, err)
	c.TopK = 3
	ids := exact.RandomIDs(rand.New(rand.NewPCG(1, 64)), 12, c.Vocab)
	forced(t, c, ids, func(run *exact.Run) {
		last := run.Read[len(run.Read)-1][11]
		for s := range ids {
			if s < last[0] || s > last[0] && s < last[1] {
				last[0] = s
				break
			}
		}
	}, func(run exact.Run) float64 { return run.ReadRegret })
}

// forced runs a model with its own choices, and with those that spoil changes.
func forced(t *testing.T, c synthetic.Config, ids []int, spoil func(*exact.Run), regret func(exact.Run) float64) {
	f := open(t, c)
	free, err := exact.Forward(f, ids, exact.Rounding{}, nil)
	require.NoError(t, err)
	again, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Equal(t, free.Logits, again.Logits)
	require.Zero(t, regret(again))
	spoil(&free)
	other, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Greater(t, regret(other), 10*tie)
}

func open(t *testing.T, c synthetic.Config) *gguf.File {
	t.Helper()
	written, err := c.WriteFile(filepath.Join(t.TempDir(), "model.gguf"))
	require.NoError(t, err)
	f := gguftest.OpenFile(t, written.Files[0])
	return f
}
