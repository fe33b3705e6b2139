//go:build unix

package clients

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// realLimit bounds the end of the program.
const realLimit = 2 * time.Minute

// TestRealServer builds the program, serves its built-in model and queries it with
// the JavaScript clients; then it stops it as a supervisor would.
func TestRealServer(t *testing.T) {
	testenv.Need(t, testenv.Full, "the program with the JavaScript clients, from npm")
	p, addr := harness.Serve(t, testenv.Program(t), "serve", "--api-key", apiKey)
	node(t, "real.mjs", "BASE_URL=http://"+addr+"/v1", "API_KEY="+apiKey)
	require.NoError(t, p.Signal(syscall.SIGTERM))
	code, err := p.Wait(testenv.Within(t, realLimit))
	require.NoError(t, err, "%s", p.Log)
	require.Zero(t, code, "%s", p.Log)
}
