//go:build cgo && linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestLibraryThatHangs: a verbs library with a constructor that never returns keeps no rank
// alive after SIGTERM, whether the rank loads it itself or in a helper.
func TestLibraryThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, lib, devices := filepath.Join(dir, "hang.c"), filepath.Join(dir, "hang.so"), filepath.Join(dir, "devices.json")
	require.NoError(t, os.WriteFile(source, []byte("#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\n"), 0o600))
	msg, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	require.NoError(t, os.WriteFile(devices, []byte(`[[null, ["a"]], [["b"], null]]`), 0o600))
	for _, inProcess := range []string{"true", "false"} {
		t.Run("in process "+inProcess, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Env: []string{"RINGMASTER_VERBS_LIBRARY=" + lib},
				Flags: []string{"--transport", "rdma", "--rdma-devices", devices, "--rdma-in-process=" + inProcess}})
			require.NoError(t, b.Start(0, 1))
			b.waitLog(1, 0, joined)
			pid := b.Rank(1).Pid()
			require.Eventually(t, func() bool { return loads(pid, lib) }, hangLimit, 5*time.Millisecond, "%s", b.Rank(1).Log)
			for _, rank := range []int{1, 0} {
				at := b.signal(rank, syscall.SIGTERM)
				_, err = b.Rank(rank).Wait(testenv.Within(t, 8*time.Second)) // less than any limit of a call of the library
				require.NoError(t, err, "%s", b.Rank(rank).Log)
				t.Logf("rank %d ended %v after SIGTERM", rank, time.Since(at).Round(time.Millisecond))
			}
		})
	}
}

// loads reports whether a process or one of its children has a file mapped.
func loads(pid int, file string) bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err == nil && strings.Contains(string(maps), file) {
		return true
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(text)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil && loads(n, file) {
				return true
			}
		}
	}
	return false
}
