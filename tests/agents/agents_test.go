package agents

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// agent is a coding agent as it comes from npm.
type agent struct {
	pkg, program string // of the package for this system, without the system
	asks         string // the request that an answer of it takes
	transcript   string // file in testdata with what it sends
	limit        int    // tokens of an answer that it is set to ask for, 0: it cannot be
	// command is how it is told what to do, once and without a terminal.
	command func(t *testing.T, s *server, words string) (env, args []string)
}

// beforeArguments is the end of the markup of a call's name.
const beforeArguments = "\">\n"

// maxAnswer is the limit of answers for agents that can have one.
const maxAnswer = 3000

// Claude Code speaks Anthropic's Messages API.
var claudeCode = agent{
	pkg: "@anthropic-ai/claude-code", program: "claude", asks: "POST /v1/messages 200", transcript: "claude-code.json", limit: maxAnswer,
	command: func(_ *testing.T, s *server, words string) (env, args []string) {
		return []string{
			"ANTHROPIC_BASE_URL=" + s.url, "ANTHROPIC_AUTH_TOKEN=" + apiKey, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
			"CLAUDE_CODE_MAX_OUTPUT_TOKENS=" + strconv.Itoa(maxAnswer),
		}, []string{"--print", "--permission-mode", "acceptEdits", "--allowedTools", "Write", "--model", "scripted", words}
	},
}

// opencode speaks Chat Completions, through @ai-sdk/openai-compatible.
var opencode = agent{
	pkg: "opencode", program: "bin/opencode", asks: "POST /v1/chat/completions 200", transcript: "opencode.json", limit: maxAnswer,
	command: func(_ *testing.T, s *server, words string) (env, args []string) {
		config := `{"autoupdate":false,"share":"disabled","model":"ringmaster/scripted","small_model":"ringmaster/scripted","permission":{"edit":"allow"},
		"provider":{"ringmaster":{"npm":"@ai-sdk/openai-compatible","name":"Ringmaster","options":{"baseURL":"` + s.url + `/v1","apiKey":"` + apiKey + `"},
		"models":{"scripted":{"name":"scripted","limit":{"context":1000000,"output":` + strconv.Itoa(maxAnswer) + `}}}}}}`
		return []string{"OPENCODE_CONFIG_CONTENT=" + config, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
			[]string{"run", "--model", "ringmaster/scripted", words}
	},
}

// Codex speaks the Responses API and nothing else. It writes files by a shell.
var codex = agent{
	pkg: "@openai/codex", program: "vendor/*/bin/codex", asks: "POST /v1/responses 200", transcript: "codex.json",
	command: func(t *testing.T, s *server, words string) (env, args []string) {
		home := t.TempDir()
		config := "model = \"scripted\"\nmodel_provider = \"ringmaster\"\n[model_providers.ringmaster]\nname = \"Ringmaster\"\nbase_url = \"" + s.url + "/v1\"\nenv_key = \"RINGMASTER_KEY\"\nwire_api = \"responses\"\n"
		require.NoError(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600))
		return []string{"CODEX_HOME=" + home, "RINGMASTER_KEY=" + apiKey},
			[]string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", words}
	},
}

func TestClaudeCode(t *testing.T) { claudeCode.test(t) }
func TestOpencode(t *testing.T)   { opencode.test(t) }
func TestCodex(t *testing.T)      { codex.test(t) }

// test runs every scene with the agent.
func (a *agent) test(t *testing.T) {
	program := install(t, a.pkg, a.program)
	t.Run("a file", func(t *testing.T) { a.writes(t, program, "hello.txt") })
	t.Run("two files at once", func(t *testing.T) { a.writes(t, program, "one.txt", "two.txt") })
	t.Run("cut before the arguments", func(t *testing.T) { a.cut(t, program, beforeArguments) })
	t.Run("cut in an argument", func(t *testing.T) { a.cut(t, program, content[:16]) })
	t.Run("interrupted", func(t *testing.T) { a.interrupted(t, program) })
}

// files are the paths of files in a new folder, and the words that ask for them.
func files(t *testing.T, names ...string) (folder string, paths []string, words string) {
	folder = t.TempDir()
	for _, name := range names {
		paths = append(paths, filepath.Join(folder, name))
	}
	return folder, paths, request + strings.Join(paths, also) + please
}

// writes: the files are there, and the model's last words are shown.
func (a *agent) writes(t *testing.T, program string, names ...string) {
	p := newPlay()
	s := start(t, p)
	folder, paths, words := files(t, names...)
	env, args := a.command(t, s, words)
	out, err := run(t, folder, env, program, args...).wait()
	require.NoError(t, err, out)
	for _, path := range paths {
		written, err := os.ReadFile(path)
		require.NoError(t, err, out)
		require.Equal(t, content, string(written))
	}
	require.Contains(t, out, done)
	require.True(t, s.asked(a.asks))
	if len(names) == 1 {
		s.record(t, a.transcript)
	}
	written, results := p.counts()
	require.Equal(t, 1, written, "all calls came in one answer")
	require.Equal(t, 1, results, "and all results in one request")
}

// cut: of a call that the length of the answer ends nothing is done.
func (a *agent) cut(t *testing.T, program, after string) {
	p := newPlay()
	p.cut, p.limit = after, a.limit
	if a.limit == 0 {
		p.context = 48 << 10 // somewhat more than its prompt
	}
	s := start(t, p)
	folder, paths, words := files(t, "hello.txt")
	env, args := a.command(t, s, words)
	out, err := run(t, folder, env, program, args...).wait()
	t.Logf("%s ended: %v", a.pkg, err)
	require.True(t, s.asked(a.asks), out)
	written, results := p.counts()
	require.Equal(t, 1, written, out)
	require.NoFileExists(t, paths[0], out)
	if after == beforeArguments {
		require.Zero(t, results, "it has run a call that had no arguments yet\n%s", out)
	}
}

// interrupted: the agent ends, the server takes its request for ended although the
// model stands still, and nothing is done.
func (a *agent) interrupted(t *testing.T, program string) {
	p := newPlay()
	p.stall = true
	s := start(t, p)
	folder, paths, words := files(t, "hello.txt")
	env, args := a.command(t, s, words)
	r := run(t, folder, env, program, args...)
	select {
	case <-p.reached:
	case <-r.ended:
		out, err := r.wait()
		require.NoError(t, err, out)
		require.Fail(t, "it ended before its request", out)
	}
	r.interrupt(t)
	out, err := r.wait()
	t.Logf("%s ended: %v", a.pkg, err)
	s.quiet()
	close(p.release)
	require.NoFileExists(t, paths[0], out)
}
