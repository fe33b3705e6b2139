//go:build cgo && linux

package verbs

import (
	stdcontext "context" // this package has a context of its own
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// hangingVariable names a library that hangs. TestHangingLibrary loads it in a separate
// process, because no other test could load a library after it.
const hangingVariable = "RINGMASTER_TEST_HANGING_LIBRARY"

// givenUp is the output of that process when it passes.
const givenUp = "loading was given up each time\n"

// TestHangingLibrary: loading a library that hangs while it starts is abandoned, and the next
// load neither waits for it without limit nor uses another thread.
func TestHangingLibrary(t *testing.T) {
	if lib := os.Getenv(hangingVariable); lib != "" {
		const limit = 200 * time.Millisecond
		_, err := openWithin(lib, limit)
		require.ErrorIs(t, err, distributed.ErrTimeout)
		require.ErrorContains(t, err, "is not loaded after 200ms; the library hangs while it starts")
		for range 3 {
			_, err = openWithin("libibverbs.so.1", limit)
			require.ErrorIs(t, err, distributed.ErrTimeout)
			require.ErrorContains(t, err, "another library is still being loaded")
		}
		// The process is ended by a signal, because with the race detector an orderly end
		// runs C's exit handlers, which wait for the loader, which waits for the library.
		_, err = os.Stdout.WriteString(givenUp)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	}
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "hang.c"), filepath.Join(dir, "hang.so")
	require.NoError(t, os.WriteFile(source, []byte("#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\n"), 0o600))
	msg, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := stdcontext.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self, "-test.run=^TestHangingLibrary$", "-test.v")
	c.Env = append(os.Environ(), hangingVariable+"="+lib)
	msg, err = c.CombinedOutput()
	require.Error(t, err, "it is killed")
	require.NotContains(t, string(msg), "--- FAIL", "%s", msg)
	require.Contains(t, string(msg), givenUp)
}
