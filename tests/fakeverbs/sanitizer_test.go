//go:build cgo && linux

package fakeverbs

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestSanitizers builds the library and a program that drives it, together
// with the loader of the binding, under each sanitizer, and runs it.
func TestSanitizers(t *testing.T) {
	testenv.Need(t, testenv.Full, "the library without hardware under the sanitizers")
	c, _, err := sources()
	require.NoError(t, err)
	lib := filepath.Dir(c[0])
	for _, san := range []string{"address,undefined", "thread"} {
		t.Run(san, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "drive")
			args := []string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=" + san, "-fno-sanitize-recover=all",
				"-rdynamic", "-pthread", "-o", out, filepath.Join(lib, "testdata/drive.c"), filepath.Join(lib, "../../../distributed/rdma/verbs/rm_lib.c")}
			msg, err := exec.Command("cc", append(append(args, c...), "-ldl")...).CombinedOutput()
			require.NoError(t, err, "%s", msg)
			// The program is linked with the library, so it loads its own
			// symbols.
			msg, err = exec.CommandContext(t.Context(), out, "").CombinedOutput()
			require.NoError(t, err, "%s", msg)
		})
	}
}
