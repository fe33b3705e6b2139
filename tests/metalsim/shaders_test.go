package metalsim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/metal/shaders"
)

// glsl is the sources of the kernels of Vulkan, which use headers that Metal does not.
func glsl(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../kernels/vulkan/shaders/*.[cg][ol][ms]*") // .comp and .glsl
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// TestShaders checks every library of metal/ as the host would compile it: with
// mslgen's checks, and with address spaces as distinct types.
func TestShaders(t *testing.T) {
	cc := value(t, "MSLSIM_CC")
	used := map[string]bool{"prelude.metal": true}
	t.Cleanup(func() {
		all, err := filepath.Glob("../../metal/shaders/*")
		require.NoError(t, err)
		headers, err := filepath.Glob("../../kernels/gpu/args/*.h")
		require.NoError(t, err)
		all = append(all, headers...)
		for _, f := range all {
			if ext := filepath.Ext(f); ext == ".md" || ext == ".go" {
				continue
			}
			name := filepath.Base(f)
			require.True(t, used[name] || strings.HasSuffix(name, ".h") && strings.Contains(glsl(t), "args/"+name), "%s is in no library", f)
		}
	})
	for _, l := range shaders.Libraries {
		for _, f := range l.Files {
			used[f] = true
		}
		text, err := shaders.Library(l.Files...)
		require.NoError(t, err)
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			in, prelude := filepath.Join(dir, "x.metal"), filepath.Join(dir, "x.h")
			require.NoError(t, os.WriteFile(in, []byte(text), 0o600))
			require.NoError(t, os.WriteFile(prelude, []byte("#define __METAL_VERSION__ 310\n"), 0o600))
			r := start(t, []string{"MSL_CHECK=1"}, cc, filepath.Join(dir, "x.so"), in, prelude)
			require.Zero(t, r.code, r.out)
		})
	}
}
