package metalsim

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// sharedCache is an empty cache of compiled shaders for the processes of a test.
// Its compiler is a script, in which $REAL is the real compiler and $CACHE the
// folder.
func sharedCache(t *testing.T, compiler string) (dir, home string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/bash\nset -e\nCACHE='" + dir + "' MSLSIM_HOME='" + value(t, "MSLSIM_HOME") + "' REAL='" + value(t, "MSLSIM_CC") + "'\n" +
		"export MSLSIM_HOME\n" + compiler
	// Written by another process: a file that this process has open for writing
	// while a parallel test forks cannot be executed.
	r := start(t, nil, "bash", "-c", `printf %s "$0" >"$1" && chmod 700 "$1"`, script, filepath.Join(dir, "mslcc"))
	require.Zero(t, r.code, r.out)
	return dir, "MSLSIM_HOME=" + dir
}

// together runs one case of the driver in several processes at the same time.
func together(t *testing.T, processes int, name string, more ...string) {
	t.Helper()
	results := make([]result, processes)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = drive(t, name, more...) })
	}
	all.Wait()
	for _, r := range results {
		require.Zero(t, r.code, r.out)
	}
}

// TestSharedRefusals: processes that compile the same invalid source at the same
// time each get the compiler's complete output, though none of them stores a
// result for the others. The test's compiler writes line by line, so that
// another process's log would be caught half written.
func TestSharedRefusals(t *testing.T) {
	testenv.Need(t, testenv.Full, "processes that compile the same invalid source")
	t.Parallel()
	_, home := sharedCache(t, "for i in {1..200}; do echo \"x.metal:$i: absent_name\"; done\necho 1 error generated.\nexit 1\n")
	together(t, 8, "refusals", home, "DRIVER_TIMES=40")
}

// TestSharedLibrary: of the processes that need the same library at the same time
// one compiles it, and all get it; the compiler leaves nothing else behind.
func TestSharedLibrary(t *testing.T) {
	testenv.Need(t, testenv.Full, "processes that compile the same source")
	t.Parallel()
	dir, home := sharedCache(t, "echo called >>\"$CACHE/calls\"\nexec \"$REAL\" \"$@\"\n")
	together(t, 8, "order", home)
	calls := testenv.ReadFile(t, filepath.Join(dir, "calls"))
	require.Equal(t, "called\n", string(calls))
	left, err := os.ReadDir(filepath.Join(dir, "lib"))
	require.NoError(t, err)
	var names []string
	for _, e := range left {
		names = append(names, strings.TrimLeft(e.Name(), "0123456789abcdef"))
	}
	require.ElementsMatch(t, []string{".h", ".lock", ".metal", ".so"}, names)
}

// TestKilledCompilation: a process dies, and its lock is released, while its
// compiler runs. The next process compiles the same source; what the orphaned
// compiler writes just before that one is done does not end up in the library.
func TestKilledCompilation(t *testing.T) {
	testenv.Need(t, testenv.Full, "a process that is killed while it compiles")
	t.Parallel()
	dir, home := sharedCache(t, `if mkdir "$CACHE/first" 2>/dev/null; then
	kill -KILL $PPID
	read -r _ <"$CACHE/compiled"
	echo rubbish >"$1" || true
	echo written >"$CACHE/spoilt"
	exit
fi
"$REAL" "$@"
echo done >"$CACHE/compiled"
read -r _ <"$CACHE/spoilt"
`)
	for _, fifo := range []string{"compiled", "spoilt"} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, fifo), 0o600))
	}
	require.Equal(t, -1, drive(t, "order", home).code, "the compiler of the test kills its caller")
	r := drive(t, "order", home)
	require.Zero(t, r.code, r.out)
}
