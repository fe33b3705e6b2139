package clients

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// readyURL matches the line that the program logs when it is ready.
var readyURL = regexp.MustCompile(`msg=ready .*\burl=(http://\S+)|INFO ready .*\burl=(http://\S+)`)

// TestRealServer builds the program, serves its built-in model and queries it with
// the JavaScript clients; then it stops it as a supervisor would.
func TestRealServer(t *testing.T) {
	testenv.Need(t, testenv.Full, "the program with the JavaScript clients, from npm")
	program, err := testenv.BuildProgram(t.Context(), t.TempDir())
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:0", "--api-key", apiKey)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var log strings.Builder
	url := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(url) // the program has ended: it never got ready
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if m := readyURL.FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1] + m[2]
			}
		}
	}()
	ended := false
	end := func() error {
		ended = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read // before Wait, which closes the pipe
		return cmd.Wait()
	}
	defer func() {
		if !ended {
			_ = end()
		}
	}()
	base, ok := <-url
	if !ok {
		ended = true
		require.NoError(t, cmd.Wait(), "%s", log.String())
		t.Fatalf("the program exited before it was ready:\n%s", log.String())
	}
	node(t, "real.mjs", "BASE_URL="+base+"/v1", "API_KEY="+apiKey)
	require.NoError(t, end(), "%s", log.String())
}
