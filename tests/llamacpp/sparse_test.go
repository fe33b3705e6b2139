package llamacpp_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/exact"
)

// TestScalesAgreeWithLlamaCpp compares a model whose routed and shared experts and dense FFN are NVFP4
// with scales. It is of deepseek32, because llama.cpp's graphs of deepseek2 and deepseek4 load
// these scales and do not apply them.
func TestScalesAgreeWithLlamaCpp(t *testing.T) {
	install(t)
	c, err := synthetic.Preset("v32-tiny")
	require.NoError(t, err)
	c.Seed, c.Types, c.FF, c.TopK, c.Scale = 70, floats, 64, 4096, synthetic.ScaleRandom
	c.Types.Gate, c.Types.Up, c.Types.Down = gguf.NVFP4, gguf.NVFP4, gguf.NVFP4
	c.TensorTypes = map[string]gguf.Type{}
	for i := range c.Layers {
		for _, name := range []string{"gate", "up", "down"} {
			c.TensorTypes[fmt.Sprintf("blk.%d.ffn_%s.weight", i, name)] = gguf.NVFP4
			c.TensorTypes[fmt.Sprintf("blk.%d.ffn_%s_shexp.weight", i, name)] = gguf.NVFP4
		}
	}
	agree(t, testenv.Program(t), c, 0.06, 0.9)
}

// TestSparseAgreesWithLlamaCpp compares models in float32 with attention that an indexer
// makes sparse. Keys have 128 elements as in the released models, because with other widths
// llama.cpp v0.5.0 aborts or gives something else. Rounding decides near ties among the
// scores of positions, and what a token then reads changes all later ones: so all tokens
// must agree roughly, and much better than with dense attention. That ours is float64
// but for such ties is shown in tests/exact.
func TestSparseAgreesWithLlamaCpp(t *testing.T) {
	install(t)
	binary := testenv.Program(t)
	const count, read = 160, 64
	for i, s := range []struct {
		name, preset string
		change       func(c *synthetic.Config)
	}{
		{"V3.2", "v32-tiny", func(*synthetic.Config) {}},
		{"GLM-5", "glm5-tiny", func(c *synthetic.Config) { c.Latent.IndexEvery, c.Layers = 0, 4 }},
		{"GLM-5.2, its layers listed", "glm5-tiny", func(*synthetic.Config) {}},
		{"GLM-5.2, told by its context, the router's function not said", "glm5-tiny", func(c *synthetic.Config) {
			c.Latent.IndexEvery, c.Latent.Gating, c.Context = 0, 0, 1<<20
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			c, err := synthetic.Preset(s.preset)
			require.NoError(t, err)
			c.Seed, c.TopK, c.Types, c.FF = 60+uint64(i), read, floats, 64
			s.change(&c)
			model, ids := write(t, c), randomIDs(c.Seed, count, c.Vocab)
			judge := startJudge(t, model)
			theirs := filepath.Join(t.TempDir(), "theirs.f32")
			judge.ask(t, map[string]any{"op": "logits", "ids": ids, "out": theirs, "single": 16, "batch": count}, nil)
			want, got := readRows(t, theirs, count, c.Vocab), ourLogits(t, binary, model, ids, 37, c.Vocab)
			below, _ := exact.Distance(got[:read], want[:read])
			first, _ := exact.Distance(got[read:read+1], want[read:read+1])
			far, same := exact.Distance(got, want)
			c.TopK = 4096
			dense, _ := exact.Distance(ourLogits(t, binary, write(t, c), ids, count, c.Vocab), want)
			t.Logf("relative difference %.5f while all is read, %.5f of the next token, %.5f of all, same most likely token %.3f; dense %.5f",
				below, first, far, same, dense)
			require.LessOrEqual(t, below, 0.001)
			require.LessOrEqual(t, first, 0.001)
			require.LessOrEqual(t, far, 0.1)
			require.GreaterOrEqual(t, same, 0.93)
			require.Greater(t, dense, 3*far)
		})
	}
}
