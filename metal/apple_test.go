//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/metal"
)

// TestAppleCompiler: Apple's compiler takes every library of kernels, in the version of
// the language that the oldest supported system has (macOS 14: Metal 3.1). It needs no
// GPU.
func TestAppleCompiler(t *testing.T) {
	if _, err := exec.LookPath("xcrun"); err != nil {
		const why = "Apple's compiler runs on a Mac with Xcode only"
		if v := os.Getenv("METAL_REQUIRED"); v != "" && v != "0" && !metal.Simulated {
			t.Fatalf("NOT CHECKED, but METAL_REQUIRED is set: %s", why)
		}
		t.Skipf("NOT CHECKED: %s", why)
	}
	sources, err := metal.Sources()
	require.NoError(t, err)
	for name, text := range sources {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "xcrun", "-sdk", "macosx", "metal", "-std=metal3.1", "-fno-fast-math", "-Werror", "-x", "metal", "-c", "-o", os.DevNull, "-")
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
