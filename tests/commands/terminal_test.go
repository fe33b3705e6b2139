package commands

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestTerminal: on a terminal serve prints three lines, with -v its log and the table of
// memory as well; elsewhere the log and the table.
func TestTerminal(t *testing.T) {
	testenv.NeedTool(t, "script", "no script here (Debian: bsdutils), which gives a terminal")
	program := testenv.Program(t)
	serve := func(t *testing.T, terminal bool, more string, ready string) string {
		command := program + " serve --threads 1 --listen " + testenv.LoopbackAddr(t) + more
		args := []string{"sh", "-c", "exec " + command}
		if terminal {
			args = []string{"script", "-qec", "exec " + command, "/dev/null"}
		}
		p, err := harness.StartProcess(nil, args...)
		require.NoError(t, err)
		t.Cleanup(p.End)
		found := regexp.MustCompile(ready)
		require.NoError(t, harness.Until(testenv.Within(t, limit), ready, func() (bool, string) {
			return found.MatchString(p.Log.String()) || !p.Running(), p.Log.String()
		}))
		require.True(t, p.Running(), "%s", p.Log)
		shown := strings.ReplaceAll(p.Log.String(), "\r", "")
		require.NoError(t, p.Signal(syscall.SIGTERM))
		return shown
	}
	lines := strings.Split(strings.TrimSpace(serve(t, true, "", `Open http://`)), "\n")
	require.Len(t, lines, 3, "%q", lines)
	require.Equal(t, "ringmaster-builtin runs on this computer (CPU, 1 thread)", lines[0])
	require.Regexp(t, `^Memory: [\d.]+ MiB of weights, and [\d.]+ MiB beside them now; many long`, lines[1])
	require.Regexp(t, `^Open http://127\.0\.0\.1:\d+$`, lines[2])
	for _, elsewhere := range []string{serve(t, true, " -v", "msg=ready"), serve(t, true, " --log info", "msg=ready"), serve(t, false, "", "msg=ready")} {
		require.Regexp(t, `(?s)KV caches .*msg=ready`, elsewhere)
		require.NotContains(t, elsewhere, "Open http://")
	}
}
