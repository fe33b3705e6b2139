//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/synthetic"
	"ringmaster/parallel"
	"ringmaster/tests/whole"
)

// shrinkLite makes a model of few layers of ds2lite-tiny.
func shrinkLite(c *synthetic.Config) { c.Layers = 3 }

// TestLatentRanks: ranks of a model with leading layers, which exchange nothing between
// two exchanges of attention, give the bits of one rank, also where one of them has no
// heads.
func TestLatentRanks(t *testing.T) {
	for name, edit := range map[string]func(*synthetic.Config){"ds2-tiny": whole.ShrinkLatent, "ds2lite-tiny": shrinkLite, "glm5-tiny": whole.ShrinkSparse} {
		f := whole.Preset(t, name, edit)
		againstOne(t, f, parallel.Exact, func(how parallel.Share, want, got [][]float32) {
			require.True(t, whole.Same(want, got), "%s, %v: the ranks differ from one", name, how)
		})
	}
}
