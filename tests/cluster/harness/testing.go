//go:build unix

package harness

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// Run is StartProcess for a test; the process ends with it at the latest.
func Run(t testing.TB, env []string, argv ...string) *Process {
	t.Helper()
	p, err := StartProcess(env, argv...)
	require.NoError(t, err)
	t.Cleanup(p.End)
	return p
}

// readyLimit bounds the start of a server.
const readyLimit = 2 * time.Minute

// ready is what a server logs when it serves.
var ready = regexp.MustCompile(`msg=ready .*\burl=http://(\S+)`)

// Serve runs argv, a server on any port, until the end of the test, and returns its
// address once it is ready.
func Serve(t testing.TB, argv ...string) (p *Process, addr string) {
	t.Helper()
	p = Run(t, nil, append(argv, "--listen", "127.0.0.1:0")...)
	line, err := p.Log.Wait(testenv.Within(t, readyLimit), 0, ready)
	require.NoError(t, err, "%s", p.Log)
	return p, ready.FindStringSubmatch(line)[1]
}
