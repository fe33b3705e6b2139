package metalsim

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// sanitizer returns the path of one of the compiler's shared sanitizer
// libraries.
func sanitizer(t *testing.T, name string) string {
	t.Helper()
	testenv.Need(t, testenv.Full, "the software device under the sanitizers")
	env(t)
	r := start(t, nil, "clang++-19", "-print-file-name=libclang_rt."+name+"-x86_64.so")
	lib := strings.TrimSpace(r.out)
	if _, err := os.Stat(lib); err != nil {
		unchecked(t, "missing (Debian packages): libclang-rt-19-dev")
	}
	return lib
}

// TestRace: a dispatch with a barrier removed is dumped and replayed, and the
// race is found, with the lines of both accesses; correct kernels pass.
func TestRace(t *testing.T) {
	sanitizer(t, "tsan")
	dir := t.TempDir()
	require.Zero(t, drive(t, "race", "MTLSIM_DUMP="+dir).code)
	r := start(t, nil, "runner/replay.sh", dir)
	require.NotZero(t, r.code, r.out)
	require.Contains(t, r.out, "data race")
	require.Regexp(t, regexp.MustCompile(`\.metal:2[0-9]`), r.out)

	dir = t.TempDir()
	for _, c := range []string{"order", "narrow barrier", "constants", "events"} {
		require.Zero(t, drive(t, c, "MTLSIM_DUMP="+dir).code)
	}
	r = start(t, nil, "runner/replay.sh", dir)
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, "without a race")
}

func TestReplayNeedsDispatches(t *testing.T) {
	env(t)
	r := start(t, nil, "runner/replay.sh", t.TempDir())
	require.NotZero(t, r.code)
	require.Contains(t, r.out, "no dispatches")
}

// TestAddress: a write past the end of a buffer is reported with its line.
func TestAddress(t *testing.T) {
	lib := sanitizer(t, "asan")
	for _, name := range cases(t, "misuse") {
		if !strings.HasPrefix(name, "beyond: ") {
			continue
		}
		r := drive(t, name, "LD_PRELOAD="+lib, "ASAN_OPTIONS=detect_leaks=0", "MSLSIM_FLAGS=-fsanitize=address -g -shared-libsan",
			"PATH="+os.Getenv("PATH")+string(filepath.ListSeparator)+"/usr/lib/llvm-19/bin")
		require.NotZero(t, r.code)
		require.Contains(t, r.out, "heap-buffer-overflow")
		require.Regexp(t, regexp.MustCompile(`\.metal:59`), r.out)
		return
	}
	t.Fatal("the driver has no such case")
}
