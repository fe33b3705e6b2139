package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// forecast is the tool of testdata/mcp.mjs as the model sees it.
var forecast = regexp.MustCompile(`\{"name": "([^"]*forecast)"`)

// TestCodexMCP: the model sees the tool of an MCP server that Codex has, its call reaches
// that server, and the result the model.
func TestCodexMCP(t *testing.T) {
	program := install(t, codex.pkg, codex.program)
	testenv.NeedTool(t, "node", "no node here, which runs the MCP server")
	p := newPlay()
	p.mcp = true
	s := start(t, p)
	env, args := codex.command(t, s, "What is the weather in Paris?")
	script, err := filepath.Abs("testdata/mcp.mjs")
	require.NoError(t, err)
	called := filepath.Join(t.TempDir(), "called")
	home := ""
	for _, v := range env {
		if dir, ok := strings.CutPrefix(v, "CODEX_HOME="); ok {
			home = dir
		}
	}
	config := filepath.Join(home, "config.toml")
	text := string(testenv.ReadFile(t, config)) + "[mcp_servers.weather]\ncommand = \"node\"\nargs = [" + `"` + script + `", "` + called + "\"]\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	out, err := run(t, t.TempDir(), env, program, args...).wait()
	require.NoError(t, err, out)
	written, err := os.ReadFile(called)
	require.NoError(t, err, out)
	require.JSONEq(t, `{"place":"Paris"}`, string(written))
	require.Contains(t, out, done)
	require.True(t, p.sawWeather(), "the result is in the prompt: %s", out)
}
