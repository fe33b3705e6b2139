//go:build linux && cgo

package vulkan_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels/vulkan"
)

// TestMemory tries the host code's memory without Go: buffers that come and go, weights
// that are imported, and copied as on a card. The validation layers watch where they are
// installed.
func TestMemory(t *testing.T) {
	all, err := vulkan.Devices()
	software := slices.IndexFunc(all, func(d vulkan.Description) bool { return d.Kind == vulkan.CPU })
	if err != nil || software < 0 {
		t.Skip("NOT CHECKED: no software device for Vulkan:", err)
	}
	sources, err := filepath.Glob("*.c")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "memory")
	args := append([]string{"-O1", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/memory.c"}, sources...)
	out, err := exec.Command("cc", append(args, "-ldl")...).CombinedOutput()
	require.NoError(t, err, string(out))
	c := exec.Command(program, strconv.Itoa(software))
	c.Env = os.Environ()
	if validation() {
		c.Env = append(c.Env, "VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation")
	}
	out, err = c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out), "of the program or the validation layers")
}

// validation reports whether Khronos' validation layers are installed.
func validation() bool {
	_, err := os.Stat("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json")
	return err == nil
}

// TestValidated opens a device and runs the self-test and the products under the validation layers, which
// print what a driver could not accept.
func TestValidated(t *testing.T) {
	if !validation() {
		t.Skip("NOT CHECKED: the validation layers of Vulkan are not installed")
	}
	c := exec.Command(os.Args[0], "-test.run", "^Test(Open|.*OfTheCPU)$", "-test.v")
	// The types of weights that only the full form tries differ in constants alone.
	c.Env = append(os.Environ(), "VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation", testenv.Variable+"=")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "VUID")
	require.NotContains(t, strings.ToLower(string(out)), "validation")
}
