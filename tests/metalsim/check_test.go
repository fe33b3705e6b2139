package metalsim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// compile checks a Metal source and returns what the compiler prints.
func compile(t *testing.T, file string) result {
	t.Helper()
	return start(t, []string{"MSL_CHECK=1"}, value(t, "MSLSIM_CC"), filepath.Join(t.TempDir(), "x.so"), file)
}

// TestProbes: sources that Apple's compiler rejects are rejected, for the right
// reason, and valid ones are accepted.
func TestProbes(t *testing.T) {
	testenv.Need(t, testenv.Full, "sources that the compiler of shaders rejects, and others that it takes")
	env(t)
	files, err := filepath.Glob("negative/*.metal")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".metal"), func(t *testing.T) {
			t.Parallel()
			text := testenv.ReadFile(t, f)
			first, _, _ := strings.Cut(string(text), "\n")
			r := compile(t, f)
			if first == "// accepted" {
				require.Zero(t, r.code, r.out)
				return
			}
			reason, ok := strings.CutPrefix(first, "// rejected: ")
			require.True(t, ok, "the first line of %s says neither accepted nor rejected", f)
			require.NotZero(t, r.code, "%s was accepted", f)
			require.Contains(t, r.out, reason)
			require.Contains(t, r.out, f+":", "the place is not told")
		})
	}
}
