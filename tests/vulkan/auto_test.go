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

// start starts a tiny model on a backend. The device that is named is the software one.
func start(t *testing.T, experts gguf.Type, o node.Options) (*node.Node, error) {
	t.Setenv(vulkan.DeviceVariable, "llvmpipe")
	level, err := cpu.ParseLevel("auto")
	require.NoError(t, err)
	c, err := synthetic.Preset("ds2-tiny")
	require.NoError(t, err)
	whole.ShrinkLatent(&c)
	c.FF = 256 // a block of the type
	c.Types.Gate, c.Types.Up = experts, experts
	c.Embd = 256
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	o.Threads, o.Level, o.Sequences, o.Overcommit, o.Plans = 1, level, 1, true, io.Discard
	o.Context, o.MaxTokens = max(o.Context, 64), max(o.MaxTokens, 16)
	o.File.Path = path
	n := node.New(o)
	t.Cleanup(n.Close)
	return n, n.Start(t.Context())
}

// TestAuto: --backend auto computes on the device that is named, also with types that it
// multiplies as float32.
func TestAuto(t *testing.T) {
	open(t) // there is a device
	for _, experts := range []gguf.Type{gguf.Q8_0, gguf.IQ3S} {
		n, err := start(t, experts, node.Options{})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(n.Kernels, "vulkan"), n.Kernels)
	}
}
