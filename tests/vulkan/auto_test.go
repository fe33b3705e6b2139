//go:build linux && cgo

package vulkan_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/vulkan"
	"ringmaster/model/synthetic"
	"ringmaster/node"
	"ringmaster/tests/whole"
)

// TestAuto: --backend auto computes on the device that is named, also with types that it
// multiplies as float32.
func TestAuto(t *testing.T) {
	open(t) // there is a device
	t.Setenv(vulkan.DeviceVariable, "llvmpipe")
	level, err := cpu.ParseLevel("auto")
	require.NoError(t, err)
	start := func(experts gguf.Type, on node.Backend) (*node.Node, error) {
		c, err := synthetic.Preset("ds2-tiny")
		require.NoError(t, err)
		whole.ShrinkLatent(&c)
		c.FF = 256 // a block of the type
		c.Types.Gate, c.Types.Up = experts, experts
		c.Embd = 256
		path := filepath.Join(t.TempDir(), "model.gguf")
		_, err = c.WriteFile(path)
		require.NoError(t, err)
		o := node.Options{Context: 64, MaxTokens: 16, Threads: 1, Level: level, Sequences: 1, Overcommit: true, Plans: io.Discard, Compute: node.Compute{Backend: on}}
		o.File.Path = path
		n := node.New(o)
		t.Cleanup(n.Close)
		return n, n.Start(t.Context())
	}
	for _, experts := range []gguf.Type{gguf.Q8_0, gguf.IQ3S} {
		n, err := start(experts, node.AutoBackend)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(n.Kernels, "vulkan"), n.Kernels)
	}
}
