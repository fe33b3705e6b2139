package agents

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// install gives the path of a program of a package for this system, which another
// package has as an option. Where it cannot be had, the test says so.
func install(t *testing.T, pkg, program string) string {
	testenv.Need(t, testenv.Full, "true coding agents, from npm (some 400 MB)")
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("NOT CHECKED: no npm here, from which the agents come")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := npm.Install(ctx, "."); err != nil {
		t.Skipf("NOT CHECKED: the agents cannot be installed: %v", err)
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path, err := filepath.Abs(filepath.Join("node_modules", pkg+"-"+runtime.GOOS+"-"+arch, program))
	require.NoError(t, err)
	if found, err := filepath.Glob(path); err == nil && len(found) == 1 {
		path = found[0]
	} else {
		t.Skipf("NOT CHECKED: %s is not to be had for %s on %s", pkg, runtime.GOOS, runtime.GOARCH)
	}
	return path
}

// run starts a program in a folder of its own, with an environment of its own, and
// gives what it wrote.
func run(t *testing.T, folder string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for an agent that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = folder
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=dumb", "NO_COLOR=1"}, env...)
	cmd.WaitDelay = 10 * time.Second // children that keep its output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	require.NoError(t, err, out.String())
	return out.String()
}

// wrote checks the file that the agent was to write, and its last words.
func wrote(t *testing.T, path, out string) {
	t.Helper()
	written, err := os.ReadFile(path)
	require.NoError(t, err, out)
	require.Equal(t, content, string(written))
	require.Contains(t, out, done)
}

// Claude Code speaks Anthropic's Messages API.
func TestClaudeCode(t *testing.T) {
	program := install(t, "@anthropic-ai/claude-code", "claude")
	s := start(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "hello.txt")
	out := run(t, folder, []string{
		"ANTHROPIC_BASE_URL=" + s.url, "ANTHROPIC_AUTH_TOKEN=" + apiKey, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
	}, program, "--print", "--permission-mode", "acceptEdits", "--allowedTools", "Write", "--model", "scripted", request+path+" please.")
	wrote(t, path, out)
	require.True(t, s.asked("POST /v1/messages 200"))
}

// opencode speaks Chat Completions, through @ai-sdk/openai-compatible.
func TestOpencode(t *testing.T) {
	program := install(t, "opencode", "bin/opencode")
	s := start(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "hello.txt")
	config := `{"autoupdate":false,"share":"disabled","model":"ringmaster/scripted","small_model":"ringmaster/scripted","permission":{"edit":"allow"},
		"provider":{"ringmaster":{"npm":"@ai-sdk/openai-compatible","name":"Ringmaster","options":{"baseURL":"` + s.url + `/v1","apiKey":"` + apiKey + `"},
		"models":{"scripted":{"name":"scripted","limit":{"context":1000000,"output":8000}}}}}}`
	out := run(t, folder, []string{"OPENCODE_CONFIG_CONTENT=" + config, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
		program, "run", "--model", "ringmaster/scripted", request+path+" please.")
	wrote(t, path, out)
	require.True(t, s.asked("POST /v1/chat/completions 200"))
}

// Codex speaks the Responses API and nothing else. It writes files by a shell.
func TestCodex(t *testing.T) {
	program := install(t, "@openai/codex", "vendor/*/bin/codex")
	s := start(t)
	folder, home := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, "hello.txt")
	config := "model = \"scripted\"\nmodel_provider = \"ringmaster\"\n[model_providers.ringmaster]\nname = \"Ringmaster\"\nbase_url = \"" + s.url + "/v1\"\nenv_key = \"RINGMASTER_KEY\"\nwire_api = \"responses\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600))
	out := run(t, folder, []string{"CODEX_HOME=" + home, "RINGMASTER_KEY=" + apiKey}, program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", request+path+" please.")
	wrote(t, path, out)
	require.True(t, s.asked("POST /v1/responses 200"))
}
