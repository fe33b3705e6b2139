// Package vulkantest makes calls of Vulkan fail in tests.
package vulkantest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/faults.c
var source []byte

// Faults is a layer of Vulkan that makes calls fail, for devices that the test opens after
// NewFaults.
type Faults struct {
	t    testing.TB
	file string // what fails
}

// What Set lets fail.
const (
	Submit = "submit" // the device is lost when something is submitted
	Wait   = "wait"   // or when it is waited for
	None   = ""
)

// Memory lets all allocations of a device fail but the first n.
func Memory(n int) string { return fmt.Sprintf("memory %d", n) }

// Buffer lets a device have buffers of at most n bytes.
func Buffer(n int) string { return fmt.Sprintf("buffer %d", n) }

const name = "VK_LAYER_RINGMASTER_faults"

// NewFaults compiles the layer and lets the loader use it until the test ends.
func NewFaults(t testing.TB) *Faults {
	dir := t.TempDir()
	f := &Faults{t, filepath.Join(dir, "faults")}
	c := filepath.Join(dir, "faults.c")
	require.NoError(t, os.WriteFile(c, source, 0o644))
	out, err := exec.Command("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", filepath.Join(dir, "libfaults.so"), c).CombinedOutput()
	require.NoError(t, err, string(out))
	manifest := fmt.Sprintf(`{"file_format_version": "1.1.2", "layer": {"name": %q, "type": "INSTANCE", "library_path": "./libfaults.so",
	"api_version": "1.3.0", "implementation_version": "1", "description": "calls that fail"}}`, name)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "faults.json"), []byte(manifest), 0o644))
	t.Setenv("VK_LAYER_PATH", dir)
	t.Setenv("VK_INSTANCE_LAYERS", name)
	t.Setenv("RINGMASTER_TEST_VULKAN_FAULTS", f.file)
	f.Set(None)
	return f
}

// Set lets calls fail from now on.
func (f *Faults) Set(what string) {
	next := f.file + ".next" // the layer reads at any time
	require.NoError(f.t, os.WriteFile(next, []byte(what), 0o644))
	require.NoError(f.t, os.Rename(next, f.file))
}
