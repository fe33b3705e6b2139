package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseCompute(t *testing.T) {
	for text, want := range map[string]Compute{
		"auto":               {},
		"cpu":                {Backend: CPUBackend},
		"metal":              {Backend: MetalBackend},
		"vulkan+cpu":         {Backend: VulkanBackend, ExpertsOnCPU: true},
		"vulkan:10GiB":       {Backend: VulkanBackend, GPUMemory: 10 << 30},
		"vulkan+cpu:500 MiB": {Backend: VulkanBackend, ExpertsOnCPU: true, GPUMemory: 500 << 20},
		"auto:8GB":           {GPUMemory: 8e9},
	} {
		got, err := ParseCompute(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, says := range map[string]string{
		"cuda":         `backend is "cuda"`,
		"vulkan+":      `backend is "vulkan+"`,
		"cpu+cpu":      "cpu has no GPU",
		"cpu:1GiB":     "cpu has no GPU",
		"vulkan:":      "is no size",
		"vulkan:10":    "unit",
		"vulkan:0 B":   "0 B",
		"vulkan:a lot": "a lot",
	} {
		_, err := ParseCompute(text)
		require.ErrorContains(t, err, says, text)
	}
	for _, text := range ComputeNames {
		_, err := ParseCompute(text)
		require.NoError(t, err)
	}
}
