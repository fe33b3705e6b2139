//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// shrinkLatent makes a small model of ds2-tiny: two leading layers, groups of experts.
func shrinkLatent(c *synthetic.Config) {
	c.Layers, c.Embd, c.Heads, c.RotDim, c.QRank = 4, 64, 2, 16, 32
	c.Experts, c.Used, c.FF = 9, 3, 32
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 2, 96, 3, 2
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
}

// shrinkLite makes a model of few layers of ds2lite-tiny.
func shrinkLite(c *synthetic.Config) { c.Layers = 3 }

// shrinkSparse makes a small model of glm5-tiny, with indexers in three of four layers,
// whose tokens read 16 positions.
func shrinkSparse(c *synthetic.Config) {
	shrinkLatent(c)
	c.IndexHeads, c.IndexDim, c.TopK, c.Latent.IndexEvery, c.Latent.Groups, c.Latent.GroupsUsed = 3, 32, 16, 4, 1, 1
}

// TestLatentRanks: ranks of a model with leading layers, which exchange nothing between
// two exchanges of attention, give the bits of one rank, also where one of them has no
// heads.
func TestLatentRanks(t *testing.T) {
	for name, edit := range map[string]func(*synthetic.Config){"ds2-tiny": shrinkLatent, "ds2lite-tiny": shrinkLite, "glm5-tiny": shrinkSparse} {
		f := preset(t, name, edit)
		againstOne(t, f, parallel.Exact, func(how parallel.Share, want, got [][]float32) {
			require.True(t, same(want, got), "%s, %v: the ranks differ from one", name, how)
		})
	}
}
