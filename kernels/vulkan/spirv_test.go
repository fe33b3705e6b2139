package vulkan

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/vulkan/shaders"
)

// TestModes: a module with all float modes is what a device accepts, and a module that is
// cut off is refused.
func TestModes(t *testing.T) {
	code, err := shaders.Module("selftest")
	require.NoError(t, err)
	same, err := withModes(code, false, false, false)
	require.NoError(t, err)
	words, err := withModes(code, true, true, true)
	require.NoError(t, err)
	require.Equal(t, len(same)+3*2+3*4, len(words), "three capabilities and three modes")
	for _, cut := range []int{0, 4, 21, 40, 44} {
		_, err := withModes(code[:cut], true, true, true)
		require.Error(t, err, cut)
	}
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Skip("NOT CHECKED: spirv-val is not installed")
	}
	file := filepath.Join(t.TempDir(), "modes.spv")
	var out []byte
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	require.NoError(t, os.WriteFile(file, out, 0o644))
	text, err := exec.Command("spirv-val", "--target-env", "vulkan1.2", "--scalar-block-layout", file).CombinedOutput()
	require.NoError(t, err, string(text))
}
