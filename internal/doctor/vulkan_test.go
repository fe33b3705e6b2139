//go:build linux && cgo

package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// findings are those about Vulkan on this host, as doctor prints them.
func findings(t *testing.T) (*Vulkan, string) {
	h := sound("h")
	h.Vulkan = examineVulkan()
	h.Vulkan.Cards = []string{}
	var text string
	for _, f := range Examine([]Facts{h}).Findings {
		if f.Check == "vulkan" {
			text += f.Severity.String() + " " + f.Evidence + " -> " + f.Cure + "\n"
		}
	}
	t.Log(text)
	return h.Vulkan, text
}

// TestVulkanHere: Mesa's device in software is described, and is no GPU.
func TestVulkanHere(t *testing.T) {
	drivers, err := filepath.Glob("/usr/share/vulkan/icd.d/lvp_icd.*.json")
	require.NoError(t, err)
	if len(drivers) == 0 {
		t.Skip("NOT CHECKED: Mesa's driver in software for Vulkan is not installed")
	}
	t.Setenv("VK_DRIVER_FILES", drivers[0])
	v, text := findings(t)
	if v.Error != "" {
		t.Skip("NOT CHECKED: no software device for Vulkan:", v.Error)
	}
	require.Equal(t, 1, len(v.Devices))
	d := v.Devices[0]
	require.Equal(t, softwareKind, d.Kind)
	require.Empty(t, d.Missing)
	require.True(t, d.Shared)
	require.True(t, slices.ContainsFunc(d.Heaps, func(h VulkanHeap) bool { return h.Local && h.Bytes >= h.Free && h.Free > 0 }))
	require.Positive(t, d.LargestBuffer)
	require.GreaterOrEqual(t, d.Workgroup, 256)
	require.Contains(t, v.Refused, "no GPU")
	require.Contains(t, text, "ok 0: llvmpipe")
	require.Contains(t, text, ", software, driver llvmpipe Mesa ")
	require.Contains(t, text, "note Vulkan shows only devices in software, which --backend auto does not take; VK_DRIVER_FILES="+drivers[0]+" chooses the drivers -> unset VK_DRIVER_FILES, or ")
}

// TestVulkanWithoutDrivers: a driver's file that does not exist is one note with its cure.
func TestVulkanWithoutDrivers(t *testing.T) {
	t.Setenv("VK_DRIVER_FILES", "/none/driver.json")
	v, text := findings(t)
	require.Empty(t, v.Devices)
	require.NotEmpty(t, v.Error)
	require.Regexp(t, `^note .*; VK_DRIVER_FILES=/none/driver.json chooses the drivers -> unset VK_DRIVER_FILES, or let it name the driver of the GPU, .+; if this host has a GPU, install .+\n$`, text)
}

// withoutLoader marks the process of TestVulkanWithoutLoader in which the loader cannot be loaded.
const withoutLoader = "RINGMASTER_TEST_WITHOUT_LOADER"

// TestVulkanWithoutLoader: a host without the loader is told the name of its package.
func TestVulkanWithoutLoader(t *testing.T) {
	if os.Getenv(withoutLoader) == "" {
		broken := t.TempDir() // searched before the folders of the system
		require.NoError(t, os.WriteFile(filepath.Join(broken, "libvulkan.so.1"), []byte(strings.Repeat("no library ", 10)), 0o644))
		c := exec.Command(os.Args[0], "-test.run", "^TestVulkanWithoutLoader$", "-test.v")
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+broken, withoutLoader+"=1", "VK_DRIVER_FILES=", "VK_ICD_FILENAMES=")
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS")
		return
	}
	v, text := findings(t)
	require.Empty(t, v.Devices)
	require.Regexp(t, `^note the Vulkan loader libvulkan.so.1 cannot be loaded \(.+\) -> if this host has a GPU, install the package of the loader \(libvulkan1 or vulkan-loader\) and the driver of the GPU\n$`, text)
}
