//go:build linux && cgo

package vulkan_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/internal/usage"
	"ringmaster/kernels/vulkan/vulkantest"
	"ringmaster/node"
)

var onVulkan = node.Options{Compute: node.Compute{Backend: node.VulkanBackend}}

// logged collects what is logged until the test ends.
func logged(t *testing.T) *bytes.Buffer {
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

// answer reads the events of a request to its end.
func answer(t *testing.T, e *engine.Engine) error {
	s, err := e.Submit(t.Context(), engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 4})
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		ev, err := s.Next(t.Context())
		if err != nil || ev.Finish != "" {
			return err
		}
	}
}

// TestFaultsOfRequests: a request whose device is lost ends with an error that names device,
// cause and cure; later ones are refused, and nothing hangs.
func TestFaultsOfRequests(t *testing.T) {
	open(t) // there is a device
	for fault, want := range map[string]string{
		vulkantest.Submit: "VK_ERROR_DEVICE_LOST; the GPU was reset", vulkantest.Wait: "VK_ERROR_DEVICE_LOST; the GPU was reset",
	} {
		if fault != vulkantest.Wait && !testenv.Rest(t, testenv.Full, "other faults of requests on Vulkan") {
			continue
		}
		t.Run(fault, func(t *testing.T) {
			f := vulkantest.NewFaults(t)
			n, err := start(t, gguf.Q8_0, onVulkan)
			require.NoError(t, err)
			e, err := engine.New(n.Model, apitest.Tokenizer{}, engine.Options{MaxActive: 2, QueueLength: 2, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close(context.Background())) }()
			require.NoError(t, answer(t, e))
			f.Set(fault)
			err = answer(t, e)
			require.ErrorIs(t, err, engine.ErrFailed)
			require.ErrorContains(t, err, "llvmpipe")
			require.ErrorContains(t, err, want)
			f.Set(vulkantest.None)
			require.ErrorIs(t, answer(t, e), engine.ErrFailed, "no more requests")
		})
	}
}

// TestFaultsAtStart: a device that fails in its self-test, or has no memory for it, for the
// model or for its weights, is replaced by the CPU with a warning that says why; --backend vulkan refuses.
func TestFaultsAtStart(t *testing.T) {
	open(t) // there is a device
	f := vulkantest.NewFaults(t)
	log := logged(t)
	for _, c := range []struct{ fault, cause, warning string }{
		{vulkantest.Submit, "VK_ERROR_DEVICE_LOST", "the GPU cannot be used"},
		{vulkantest.Wait, "VK_ERROR_DEVICE_LOST", "the GPU cannot be used"},
		{vulkantest.Memory(0), "VK_ERROR_OUT_OF_DEVICE_MEMORY", "the GPU cannot be used"},
		{vulkantest.Memory(3), "VK_ERROR_OUT_OF_DEVICE_MEMORY", "the model cannot be loaded on the GPU"},
	} {
		f.Set(c.fault)
		log.Reset()
		large := node.Options{Context: 1 << 15, MaxTokens: 1 << 13} // needs memory of its own
		n, err := start(t, gguf.Q8_0, large)
		require.NoError(t, err, c.fault)
		require.True(t, strings.HasPrefix(n.Kernels, "cpu"), n.Kernels)
		require.NotNil(t, n.Model)
		require.Regexp(t, `level=WARN msg="computing on the CPU: `+c.warning+`" .*llvmpipe.*`+c.cause, log.String())
		large.Compute = onVulkan.Compute
		_, err = start(t, gguf.Q8_0, large)
		require.ErrorContains(t, err, "llvmpipe", c.fault)
		require.ErrorContains(t, err, c.cause)
		if c.warning == "the GPU cannot be used" {
			require.ErrorContains(t, err, "use --backend cpu")
			var u *usage.Error
			require.ErrorAs(t, err, &u)
		}
	}
	// The weights are shown to the device last, before the first request.
	for n := 0; ; n++ {
		require.Less(t, n, 20)
		f.Set(vulkantest.Memory(n))
		_, err := start(t, gguf.Q8_0, onVulkan)
		require.ErrorContains(t, err, "VK_ERROR_OUT_OF_DEVICE_MEMORY", n)
		if strings.Contains(err.Error(), "bytes of the mapped file") {
			require.ErrorContains(t, err, "llvmpipe")
			break
		}
	}
}
