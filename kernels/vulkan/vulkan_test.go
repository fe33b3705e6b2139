//go:build linux && cgo

package vulkan_test

import (
	"cmp"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/vulkan"
)

// open opens the device that RINGMASTER_VULKAN_DEVICE names, or Mesa's software device. Tests of a family of ops are
// kerneltest.Run(t, open, ops...).
func open(t testing.TB) kernels.Backend {
	t.Helper()
	b, err := vulkan.Open(vulkan.Options{Device: cmp.Or(os.Getenv(vulkan.DeviceVariable), "llvmpipe")})
	if err != nil {
		t.Skip("NOT CHECKED: no software device for Vulkan:", err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestOpen: the device names itself, and one that does not exist is refused by name.
func TestOpen(t *testing.T) {
	b := open(t)
	t.Log(vulkan.Kernels(b.(*vulkan.Backend)))
	require.True(t, kernels.RowsAgree(b))
	_, err := vulkan.Open(vulkan.Options{Device: "no such device"})
	var unsuitable *vulkan.UnsuitableError
	require.ErrorAs(t, err, &unsuitable)
	require.ErrorContains(t, err, "0: ", "what there is")
}
