package clients

import (
	"os"
	"os/exec"
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
	npm.Need(t)
	require.NoError(t, npm.Install(t.Context(), "."))
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:\n%s", script, out)
	t.Logf("%s: %s", script, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", "))
	require.True(t, strings.HasSuffix(string(out), "done\n"), "%s did not come to its end:\n%s", script, out)
}

// scripted runs a script against the scripted server. The server must give up the stream that
// the script aborts, if it aborts one.
func scripted(t *testing.T, script string, aborts bool) {
	t.Helper()
	url, gone := start(t)
	node(t, script, "BASE_URL="+url, "API_KEY="+apiKey, "MODEL="+modelID)
	if aborts {
		<-gone
	}
}

func TestOpenAINode(t *testing.T)    { scripted(t, "openai.mjs", true) }
func TestAnthropicNode(t *testing.T) { scripted(t, "anthropic.mjs", true) }
func TestOllamaNode(t *testing.T)    { scripted(t, "ollama.mjs", true) }
func TestVercelAI(t *testing.T)      { scripted(t, "vercel.mjs", true) }
func TestAgentsNode(t *testing.T)    { scripted(t, "agents.mjs", false) }
