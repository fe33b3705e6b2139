package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// node runs a script of this folder against a server. Each check in the script
// prints a line "ok NAME"; a failure ends it with a stack trace.
func node(t *testing.T, script string, env ...string) {
	t.Helper()
	testenv.Need(t, testenv.Full, "the API with the JavaScript clients, from npm")
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT CHECKED: no %s here; the JavaScript clients need Node.js 18 or newer with npm", tool)
		}
	}
	require.NoError(t, npm.Install(t.Context(), "."))
	path, err := filepath.Abs(script)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", path)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:\n%s", script, out)
	t.Logf("%s: %s", script, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", "))
	require.True(t, strings.HasSuffix(string(out), "done\n"), "%s did not come to its end:\n%s", script, out)
}

func TestOpenAINode(t *testing.T) {
	url, gone := start(t)
	node(t, "openai.mjs", "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
	<-gone // the stream that the script aborted
}

func TestAnthropicNode(t *testing.T) {
	url, gone := start(t)
	node(t, "anthropic.mjs", "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
	<-gone
}

func TestOllamaNode(t *testing.T) {
	url, gone := start(t)
	node(t, "ollama.mjs", "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
	<-gone
}

func TestVercelAI(t *testing.T) {
	url, gone := start(t)
	node(t, "vercel.mjs", "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
	<-gone
}

func TestAgentsNode(t *testing.T) {
	url, _ := start(t)
	node(t, "agents.mjs", "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
}
