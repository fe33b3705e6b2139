//go:build unix

package clients

import (
	"context"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// realLimit bounds the start and the end of the program.
const realLimit = 2 * time.Minute

// TestRealServer builds the program, serves its built-in model and queries it with
// the JavaScript clients; then it stops it as a supervisor would.
func TestRealServer(t *testing.T) {
	testenv.Need(t, testenv.Full, "the program with the JavaScript clients, from npm")
	program, err := testenv.BuildProgram(t.Context(), t.TempDir())
	require.NoError(t, err)
	p, err := harness.StartProcess(nil, program, "serve", "--listen", "127.0.0.1:0", "--api-key", apiKey)
	require.NoError(t, err)
	t.Cleanup(p.End)
	ctx, cancel := context.WithTimeout(t.Context(), realLimit)
	defer cancel()
	ready := regexp.MustCompile(`msg=ready .*\burl=(http://\S+)`)
	line, err := p.Log.Wait(ctx, 0, ready)
	require.NoError(t, err, "%s", p.Log)
	node(t, "real.mjs", "BASE_URL="+ready.FindStringSubmatch(line)[1]+"/v1", "API_KEY="+apiKey)
	require.NoError(t, p.Signal(syscall.SIGTERM))
	ending, cancel := context.WithTimeout(t.Context(), realLimit)
	defer cancel()
	code, err := p.Wait(ending)
	require.NoError(t, err, "%s", p.Log)
	require.Zero(t, code, "%s", p.Log)
}
