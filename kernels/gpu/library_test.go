//go:build cgo

package gpu

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/vulkan/shaders"
)

// TestKernelsOfVulkan: Vulkan's table has every kernel that ops use on a device of packed
// products, and no other. One that is missing would fail only when it is first submitted.
func TestKernelsOfVulkan(t *testing.T) {
	others := []string{gemvLibrary, gemmLibrary, expertGEMVLibrary, expertGEMMLibrary}
	var want, have []shaders.Name
	for _, k := range allKernels {
		if !slices.Contains(others, k.library) {
			want = append(want, shaders.Name{Library: k.library, Kernel: k.name})
		}
	}
	for name := range shaders.Kernels {
		if name.Library != "selftest" { // of the device itself
			have = append(have, name)
		}
	}
	require.ElementsMatch(t, want, have)
}
