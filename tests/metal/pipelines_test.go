//go:build cgo && (linux || darwin)

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/gpu/counting"
	"ringmaster/metal"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/tests/whole"
)

// TestPipelines: all pipelines that a model needs are made when it is opened, and none in its
// first prefill and decode, where each would cost a user tens of milliseconds.
func TestPipelines(t *testing.T) {
	for name, edit := range map[string]func(*synthetic.Config){
		"flash": twoBits, "tiny": nil, "ds2-tiny": nil, "ds2lite-tiny": nil, "glm5-tiny": nil, "glm-tiny": nil,
	} {
		f := whole.Preset(t, name, edit)
		b, err := counting.Open(metal.Numbers())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		bare := b.Pipelines()
		m := whole.Open(t, f, b, decoder.OpenOptions{MaxTokens: 256, Context: 1024})
		opened := b.Pipelines()
		require.Greater(t, opened, bare, name)
		at := 0
		for _, n := range []int{256, 1, 3, 7, 20} { // with kernels for 1, 4, 8 and many tokens
			require.NoError(t, stepOf(m, at, n), name)
			at += n
		}
		require.Equal(t, opened, b.Pipelines(), "%s: pipelines were made in a step", name)
	}
}

// twoBits are the routed experts of the files of V4 Flash that fit a Mac.
func twoBits(c *synthetic.Config) {
	c.Types.Gate, c.Types.Up, c.Types.Down = gguf.IQ2XXS, gguf.IQ2XXS, gguf.Q2_K
}
