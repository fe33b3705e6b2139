package llamacpp_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/exact"
)

// TestLatentAgreesWithLlamaCpp compares the tiny models of each kind of the architecture
// deepseek2 with other seeds. Left out is what llama.cpp is known to compute differently:
// YaRN's betas, which it takes as 32 and 1 whatever the file says, and groups chosen by
// softmax and adds up the two best.
func TestLatentAgreesWithLlamaCpp(t *testing.T) {
	install(t)
	binary := testenv.Program(t)
	for i, name := range []string{"ds2-tiny", "ds2lite-tiny", "k2-tiny", "glm-tiny"} {
		c, err := synthetic.Preset(name)
		require.NoError(t, err)
		c.Seed = 40 + uint64(i)
		c.Latent.BetaFast, c.Latent.BetaSlow = 32, 1
		t.Run(name, func(t *testing.T) { agree(t, binary, c, 0.06, 0.9) })
		c.Types, c.FF = floats, 64
		t.Run(name+" in float32", func(t *testing.T) { agree(t, binary, c, 0.01, 0.97) })
	}
}

// floats is float32 for every tensor.
var floats = synthetic.Types{}

// TestRandomLatentShapes compares random models of deepseek2 with llama.cpp by way of a
// float64 forward pass. A direct comparison proves little: rounding decides near ties
// among experts, and a choice that falls the other way changes the scores of all later
// layers, by which the logits of the two engines come to differ by up to 0.4. So
//
//   - in float32, llama.cpp with a float32 KV cache equals float64: one function;
//   - with quantised weights it is as far from float64 as float64 comes to be when it
//     rounds activations as llama.cpp does;
//   - ours is not farther, and equals float64 that is given the experts of ours.
func TestRandomLatentShapes(t *testing.T) {
	install(t)
	shapes := 4
	if testenv.Rest(t, testenv.Exhaustive, "eight shapes") {
		shapes = 8
	}
	for i := range shapes {
		r := rand.New(rand.NewPCG(uint64(i), 41))
		c, err := exact.Random(r, true)
		require.NoError(t, err)
		n := tokens
		if c.Layers > 8 {
			n = 80
		}
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) { judged(t, c, exact.RandomIDs(r, n, c.Vocab)) })
	}
}

func judged(t *testing.T, c synthetic.Config, ids []int) {
	model := write(t, c)
	f := gguftest.OpenFile(t, model)
	want, err := exact.Forward(f, ids, exact.Rounding{}, nil)
	require.NoError(t, err)

	got, err := exact.Ours(t.Context(), f, ids)
	require.NoError(t, err)
	given, err := exact.Forward(f, ids, exact.Rounding{}, &got)
	require.NoError(t, err)
	alike, _ := exact.Distance(got.Logits, given.Logits)
	free, same := exact.Distance(got.Logits, want.Logits)
	differ, of := exact.Differing(got.Chosen, want.Chosen)
	t.Logf("ours: %.6f from float64 with the same experts, %.6f from it as it is, same most likely token %.3f; %d of %d choices differ, regret %.6f",
		alike, free, same, differ, of, given.Regret)
	require.LessOrEqual(t, alike, 0.001)
	require.LessOrEqual(t, given.Regret, 0.002)
	require.LessOrEqual(t, given.ReadRegret, 0.002)

	judge := startJudge(t, model)
	theirs := func(exactly bool) (far, same float64) {
		path := filepath.Join(t.TempDir(), "theirs.f32")
		judge.ask(t, map[string]any{"op": "logits", "ids": ids, "out": path, "single": 16, "batch": len(ids), "exact": exactly}, nil)
		return exact.Distance(readRows(t, path, len(ids), c.Vocab), want.Logits)
	}
	if c.Types == floats {
		far, same := theirs(true)
		t.Logf("llama.cpp with a float32 KV cache: %.6f from float64, same most likely token %.3f", far, same)
		require.LessOrEqual(t, far, 0.0001)
		return
	}
	far, same := theirs(false)
	rounded, err := exact.Forward(f, ids, exact.Rounding{Cache: true, Activations: true}, nil)
	require.NoError(t, err)
	explained, _ := exact.Distance(rounded.Logits, want.Logits)
	differ, _ = exact.Differing(rounded.Chosen, want.Chosen)
	t.Logf("llama.cpp: %.6f from float64, same most likely token %.3f; float64 that rounds like it: %.6f, %d choices differ", far, same, explained, differ)
	require.LessOrEqual(t, far, 2*explained)
	require.LessOrEqual(t, free, far+0.001)
}
