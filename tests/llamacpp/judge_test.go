package llamacpp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// install installs llama.cpp with npm, once. Without node and npm the test is
// skipped.
func install(t *testing.T) {
	t.Helper()
	testenv.Need(t, testenv.Full, "a comparison with llama.cpp, from npm,")
	npm.Need(t)
	version, err := exec.Command("node", "--version").Output()
	require.NoError(t, err)
	var major int
	if _, err := fmt.Sscanf(string(version), "v%d.", &major); err != nil || major < 20 {
		t.Skipf("NOT CHECKED: node is %s; llama.cpp needs 20 or later", bytes.TrimSpace(version))
	}
	require.NoError(t, npm.Install(t.Context(), "."))
}

// judge is a running judge.mjs process.
type judge struct {
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
}

// startJudge loads a model in llama.cpp. The process ends with the test.
func startJudge(t *testing.T, model string, flags ...string) *judge {
	t.Helper()
	cmd := exec.Command("node", append([]string{"judge.mjs", model}, flags...)...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	j := &judge{in: in, out: bufio.NewReaderSize(out, 1<<20), stderr: &bytes.Buffer{}}
	cmd.Stderr = j.stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("judge of %s: %v\n%s", model, err, j.stderr)
		}
	})
	return j
}

// ask sends a request and decodes the response into answer, if that is not nil.
func (j *judge) ask(t *testing.T, request map[string]any, answer any) {
	t.Helper()
	_, err := j.in.Write(append(testenv.JSON(t, request), '\n'))
	require.NoError(t, err)
	line, err := j.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no response from the judge: %v", err)
	}
	fault := testenv.FromJSON[struct{ Error string }](t, line)
	require.Empty(t, fault.Error)
	if answer != nil {
		require.NoError(t, json.Unmarshal(line, answer))
	}
}
