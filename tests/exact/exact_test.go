package exact_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/exact"
)

// TestOursOnRandomShapes compares our logits with the float64 forward pass that is given
// the experts which ours chose: what is left is the rounding of the KV cache to float16
// and of activations to 15 bits. Where ours chose other experts than float64 would have,
// the scores were tied within that rounding.
func TestOursOnRandomShapes(t *testing.T) {
	shapes, tokens := 3, 40
	if testenv.Rest(t, testenv.Full, "more shapes and longer sequences") {
		shapes, tokens = 8, 120
		if testenv.Rest(t, testenv.Exhaustive, "sixteen shapes") {
			shapes = 16
		}
	}
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 61))
			c, err := exact.Random(r, false)
			require.NoError(t, err)
			ours(t, c, exact.RandomIDs(r, tokens, c.Vocab))
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

// TestOursOfSparseShapes does the same of models with an indexer, of both families; it is
// given the positions too. Attention that reads everything is far off.
func TestOursOfSparseShapes(t *testing.T) {
	shapes, tokens := 2, 60
	if testenv.Rest(t, testenv.Full, "more shapes and longer sequences") {
		shapes, tokens = 4, 120
		if testenv.Rest(t, testenv.Exhaustive, "eight shapes") {
			shapes = 8
		}
	}
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 63))
			c, err := exact.Random(r, false)
			require.NoError(t, err)
			c, err = exact.Sparse(r, c)
			require.NoError(t, err)
			ids := exact.RandomIDs(r, tokens, c.Vocab)
			got := ours(t, c, ids)
			c.TopK = len(ids)
			dense, err := exact.Ours(t.Context(), open(t, c), ids)
			require.NoError(t, err)
			far, _ := exact.Distance(dense.Logits, got.Logits)
			require.Greater(t, far, 20*farthest)
		})
	}
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
	f := open(t, c)
	ids := exact.RandomIDs(r, 12, c.Vocab)
	free, err := exact.Forward(f, ids, exact.Rounding{}, nil)
	require.NoError(t, err)
	again, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Equal(t, free.Logits, again.Logits)
	require.Zero(t, again.Regret)
	last := free.Chosen[len(free.Chosen)-1][5]
	for e := range c.Experts {
		if e != last[0] && (len(last) < 2 || e < last[1]) {
			last[0] = e
			break
		}
	}
	other, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Greater(t, other.Regret, 10*tie)
}

// TestForcedPositions checks the same of positions that tokens read.
func TestForcedPositions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 64))
	c, err := synthetic.Preset("v32-tiny")
	require.NoError(t, err)
	c.TopK = 3
	f := open(t, c)
	ids := exact.RandomIDs(r, 12, c.Vocab)
	free, err := exact.Forward(f, ids, exact.Rounding{}, nil)
	require.NoError(t, err)
	again, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Equal(t, free.Logits, again.Logits)
	require.Zero(t, again.ReadRegret)
	last := free.Read[len(free.Read)-1][11]
	for s := range ids {
		if s < last[0] || s > last[0] && s < last[1] {
			last[0] = s
			break
		}
	}
	other, err := exact.Forward(f, ids, exact.Rounding{}, &free)
	require.NoError(t, err)
	require.Greater(t, other.ReadRegret, 10*tie)
}

func open(t *testing.T, c synthetic.Config) *gguf.File {
	t.Helper()
	written, err := c.WriteFile(filepath.Join(t.TempDir(), "model.gguf"))
	require.NoError(t, err)
	f, err := gguf.Open(written.Files[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}
