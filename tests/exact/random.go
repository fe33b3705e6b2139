package exact

import (
	"math/rand/v2"

	"ringmaster/gguf"
	"ringmaster/model/synthetic"
)

// Random draws a small model of the architecture deepseek2. With peer it is one that
// llama.cpp v0.5.0 loads and reads the same way: without a low rank of queries it has 27
// layers, YaRN's betas are 32 and 1, its log multiplier is present, and it has no groups
// if scores are a softmax.
func Random(r *rand.Rand, peer bool) (synthetic.Config, error) {
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c, err := synthetic.Preset("ds2-tiny")
	if err != nil {
		return c, err
	}
	c.Seed = r.Uint64()
	c.Layers, c.QRank = 2+r.IntN(4), pick(64, 128)
	if r.IntN(4) == 0 {
		c.QRank = 0
		if peer {
			c.Layers = 27
		}
	}
	c.Heads, c.RotDim, c.Shared, c.WeightsScale = pick(1, 3, 4, 8), pick(16, 32, 64), 1+r.IntN(2), []float64{1, 2.5, 2.827}[r.IntN(3)]
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Split = pick(64, 128, 256), pick(32, 64, 96), pick(32, 64, 96), pick(0, 1)
	l.Dense, l.DenseFF, l.Norm, l.Bias = 1+r.IntN(min(3, c.Layers-1)), pick(256, 512), pick(0, 1), pick(0, 1)
	l.Gating, l.Groups, l.GroupsUsed = pick(1, 2, 2), 0, 0
	if l.Gating == 2 || !peer {
		l.Groups = pick(0, 2, 4, 8)
	}
	if l.Groups > 0 {
		l.GroupsUsed = 1 + l.Groups/2
	}
	c.Experts, c.Used = 8*pick(2, 3, 5), 1+r.IntN(6)
	c.RopeBase, c.YaRNFactor, l.YaRNLog = []float64{10000, 50000}[r.IntN(2)], float64(pick(0, 40)), []float64{0.0707, 0.1}[r.IntN(2)]
	if !peer && r.IntN(2) == 0 {
		l.BetaFast, l.BetaSlow = float64(pick(1, 8)), 1
	}
	if r.IntN(3) == 0 {
		c.Types = synthetic.Types{} // float32
		return c, nil
	}
	c.Types.Gate = []gguf.Type{gguf.Q4_K, gguf.IQ2XXS, gguf.Q6_K, gguf.Q8_0, gguf.IQ4XS}[r.IntN(5)]
	c.Types.Up, c.Types.Down = c.Types.Gate, []gguf.Type{gguf.Q4_K, gguf.Q5_0, gguf.Q8_0, gguf.IQ4NL}[r.IntN(4)]
	return c, nil
}

// Sparse gives a random model the attention of V3.2 or of GLM-5. Its tokens read fewer
// positions than a test has tokens.
func Sparse(r *rand.Rand, c synthetic.Config) (synthetic.Config, error) {
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	c.QRank, c.Layers, c.Latent.Split = max(c.QRank, 64), 3+r.IntN(6), 1
	c.RotDim, c.Latent.Dense = min(c.RotDim, 32), min(c.Latent.Dense, c.Layers-1)
	c.IndexHeads, c.IndexDim, c.TopK = pick(1, 3, 8, 16), pick(32, 64, 128), pick(1, 5, 16, 24)
	if r.IntN(2) == 0 {
		return c, c.SetArch(archV32)
	}
	switch pick(0, 1, 2) {
	case 1:
		c.Latent.IndexEvery = pick(2, 3, 4)
	case 2:
		c.Context = 1 << 20
	}
	return c, c.SetArch(archGLM)
}

// RandomIDs are n token ids; the first is BOS, as llama.cpp expects of a sequence.
func RandomIDs(r *rand.Rand, n, vocab int) []int {
	ids := make([]int, n)
	for i := 1; i < n; i++ {
		ids[i] = 3 + r.IntN(vocab-3)
	}
	return ids
}
