package llamacpp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model/synthetic"
)

// TestLatentAgreesWithLlamaCpp compares models of the architecture deepseek2: the tiny
// ones of each kind with other seeds, then random shapes. Left out is what llama.cpp is
// known to compute differently: YaRN's betas, which it takes as 32 and 1 whatever the
// file says, and groups chosen by softmax, of which it adds up the two best.
func TestLatentAgreesWithLlamaCpp(t *testing.T) {
	install(t)
	binary := build(t)
	for i, name := range []string{"ds2-tiny", "ds2lite-tiny", "k2-tiny", "glm-tiny"} {
		c, err := synthetic.Preset(name)
		require.NoError(t, err)
		c.Seed = 40 + uint64(i)
		c.Latent.BetaFast, c.Latent.BetaSlow = 32, 1
		t.Run(name, func(t *testing.T) { agree(t, binary, c, 0.06, 0.9) })
		c.Types, c.FF = floats, 64
		t.Run(name+" in float32", func(t *testing.T) { agree(t, binary, c, 0.01, 0.97) })
	}
	for i := range 8 {
		c := randomLatent(t, rand.New(rand.NewPCG(uint64(i), 41)))
		far, same := 0.06, 0.9
		if c.Types == floats {
			far, same = 0.01, 0.97
		}
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) { agree(t, binary, c, far, same) })
	}
}

// floats is float32 for every tensor.
var floats = synthetic.Types{}

// randomLatent draws a model that llama.cpp loads: without a low rank of queries it must
// have 27 layers.
func randomLatent(t *testing.T, r *rand.Rand) synthetic.Config {
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c, err := synthetic.Preset("ds2-tiny")
	require.NoError(t, err)
	c.Seed = r.Uint64()
	c.Layers, c.QRank = 2+r.IntN(4), pick(64, 128)
	if r.IntN(4) == 0 {
		c.Layers, c.QRank = 27, 0
	}
	c.Heads, c.RotDim, c.Shared, c.WeightsScale = pick(1, 3, 4, 8), pick(16, 32, 64), 1+r.IntN(2), []float64{1, 2.5, 2.827}[r.IntN(3)]
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Split = pick(64, 128, 256), pick(32, 64, 96), pick(32, 64, 96), pick(0, 1)
	l.Dense, l.DenseFF, l.Norm, l.Bias = 1+r.IntN(min(3, c.Layers-1)), pick(256, 512), pick(0, 1), pick(0, 1)
	if l.Gating = pick(1, 2, 2); l.Gating == 1 {
		l.Groups, l.GroupsUsed = 0, 0
	} else if l.Groups = pick(0, 2, 4, 8); l.Groups > 0 {
		l.GroupsUsed = 1 + l.Groups/2
	}
	c.Experts, c.Used = 8*pick(2, 3, 5), 1+r.IntN(6)
	c.RopeBase, c.YaRNFactor, l.YaRNLog = []float64{10000, 50000}[r.IntN(2)], float64(pick(0, 40)), []float64{0.0707, 0.1}[r.IntN(2)]
	if r.IntN(3) == 0 {
		c.Types = floats
		return c
	}
	c.Types.Gate = []gguf.Type{gguf.Q4_K, gguf.IQ2XXS, gguf.Q6_K, gguf.Q8_0, gguf.IQ4XS}[r.IntN(5)]
	c.Types.Up, c.Types.Down = c.Types.Gate, []gguf.Type{gguf.Q4_K, gguf.Q5_0, gguf.Q8_0, gguf.IQ4NL}[r.IntN(4)]
	return c
}
