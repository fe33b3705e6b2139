package lint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestCrossBuilds: nothing of one processor or system creeps in. For arm64 with cgo
// tests/install builds an archive.
func TestCrossBuilds(t *testing.T) {
	testenv.Need(t, testenv.Full, "building for other systems")
	for name, env := range map[string][]string{
		"linux arm64 without cgo":   {"GOOS=linux", "GOARCH=arm64"},
		"darwin arm64 without cgo":  {"GOOS=darwin", "GOARCH=arm64"},
		"freebsd amd64 without cgo": {"GOOS=freebsd", "GOARCH=amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, typeErrors(t, env, "./cmd/..."))
		})
	}
}

// Test32BitIsRefused checks that a build for a 32-bit system ends with the message
// that says so, and with nothing else.
func Test32BitIsRefused(t *testing.T) {
	const refusal = "ringmaster/internal/only64bit"
	for _, arch := range []string{"386", "arm"} {
		env := []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}
		out, err := run(t, env, "go", "build", "./internal/only64bit")
		require.Error(t, err)
		require.Contains(t, out, "Ringmaster_needs_a_64_bit_system")
		out, err = run(t, env, "go", "list", "-deps", "./gguf", "./distributed")
		require.NoError(t, err, out)
		require.Equal(t, 1, strings.Count(out, refusal), out)
		t.Run(arch, func(t *testing.T) {
			testenv.Need(t, testenv.Full, "building for other systems")
			// The go command compiles only what does not import it.
			out, err := run(t, env, "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
			require.NoError(t, err, out)
			var without []string
			for line := range strings.Lines(out) {
				if !strings.Contains(line, refusal) {
					without = append(without, strings.Fields(line)[0])
				}
			}
			require.NotEmpty(t, without)
			for _, program := range []string{"ringmaster/cmd/server", "ringmaster/cmd/mkmodel"} {
				require.NotContains(t, without, program)
			}
			require.Empty(t, typeErrors(t, env, without...))
		})
	}
}
