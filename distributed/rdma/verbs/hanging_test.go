//go:build cgo && linux

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// hangingVariable names a library that hangs, in the process that TestHangingLibrary starts:
// no other test could load one after it.
const hangingVariable = "RINGMASTER_TEST_HANGING_LIBRARY"

// TestHangingLibrary: loading a library that hangs in its own start is given up, and the next
// load neither waits for it for ever nor takes a thread of its own.
func TestHangingLibrary(t *testing.T) {
	if lib := os.Getenv(hangingVariable); lib != "" {
		const limit = 200 * time.Millisecond
		_, err := openWithin(lib, limit)
		require.ErrorIs(t, err, distributed.ErrTimeout)
		require.ErrorContains(t, err, "is not loaded after 200ms; the library hangs in its own start")
		for range 3 {
			_, err = openWithin("libibverbs.so.1", limit)
			require.ErrorIs(t, err, distributed.ErrTimeout)
			require.ErrorContains(t, err, "another library is still being loaded")
		}
		return
	}
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "hang.c"), filepath.Join(dir, "hang.so")
	require.NoError(t, os.WriteFile(source, []byte("#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\n"), 0o600))
	msg, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self, "-test.run=^TestHangingLibrary$", "-test.v")
	c.Env = append(os.Environ(), hangingVariable+"="+lib)
	msg, err = c.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	require.Contains(t, string(msg), "--- PASS: TestHangingLibrary")
}
