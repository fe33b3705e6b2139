package commands

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

const (
	// limit bounds each command, and the wait for a server.
	limit = 2 * time.Minute
	// grace is how long a server may take to end.
	grace = 20 * time.Second
)

// bed is the temporary folder in which the commands of a group run.
type bed struct {
	dir   string
	names map[string]string // what stands for {NAME}
	env   []string
	limit time.Duration              // in place of limit; 0: limit
	shell func(text string) []string // the command that runs text in the folder; nil: bash
	// ending are the processes that end by themselves.
	ending []*harness.Process
}

// TestCommands runs the commands in the order of the verdicts.
func TestCommands(t *testing.T) {
	testenv.Need(t, testenv.Full, "each command of the documents")
	commands := all(t)
	bin := t.TempDir()
	_, err := testenv.BuildProgram(t.Context(), bin)
	require.NoError(t, err)
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, p := range g.needs {
				testenv.NeedTool(t, p, p+" is not installed")
			}
			b := newBed(t, bin)
			b.repository(t)
			for _, s := range g.steps {
				began := time.Now()
				b.run(t, s, s.find(t, commands).text)
				t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), s.has)
			}
			ctx := testenv.Within(t, limit)
			for _, p := range b.ending {
				code, err := p.Wait(ctx)
				require.NoError(t, err, "%v: %s", p.Args, p.Log)
				require.Zero(t, code, "%v: %s", p.Args, p.Log)
			}
		})
	}
}

func newBed(t *testing.T, bin string) *bed {
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	b := &bed{dir: dir, names: map[string]string{"dir": dir, "root": here, "model": filepath.Join(here, "model/builtin/builtin.gguf")}}
	b.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=dumb"}
	require.NoError(t, os.Symlink(bin, filepath.Join(dir, "bin")))
	for _, d := range []string{"models1", "models2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	return b
}

// repository makes the folder one with a change.
func (b *bed) repository(t *testing.T) {
	name := testenv.WriteFile(t, filepath.Join(b.dir, "f.txt"), "one\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "f.txt"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = b.dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile(name, []byte("two\n"), 0o644))
}

// name is what stands for {NAME}.
func (b *bed) name(name string) string {
	v, ok := b.names[name]
	if !ok {
		v, _ = testenv.FreeAddr("127.0.0.1") // "" fails whoever listens on it
		if name == "port" {
			_, v, _ = net.SplitHostPort(v)
		}
		b.names[name] = v
	}
	return v
}

func (b *bed) read(t *testing.T, file string) string {
	text := testenv.ReadFile(t, filepath.Join(b.dir, file))
	return string(text)
}

var named = regexp.MustCompile(`\{([a-z ]+)\}`)

// replaced is a command with its parts replaced. What is not there fails: the document
// has changed.
func (b *bed) replaced(t *testing.T, text string, swaps []swap) string {
	t.Helper()
	for _, w := range swaps {
		to := named.ReplaceAllStringFunc(w.to, func(s string) string { return b.name(s[1 : len(s)-1]) })
		if w.from == "" {
			text += to
			continue
		}
		require.Contains(t, text, w.from, "what is replaced in %s", text)
		text = strings.ReplaceAll(text, w.from, to)
	}
	return text
}

// find is the command of a step: the one that is has, or the only one that contains it.
func (s step) find(t *testing.T, commands []command) command {
	t.Helper()
	var found []command
	for _, c := range commands {
		if c.document == s.document && c.text == s.has {
			return c
		}
		if c.document == s.document && strings.Contains(c.text, s.has) {
			found = append(found, c)
		}
	}
	require.Len(t, found, 1, "commands of %s with %q; has one changed?", s.document, s.has)
	return found[0]
}

// run runs a command, and once more for each of also: to its end, or until it serves.
func (b *bed) run(t *testing.T, s step, text string) {
	t.Helper()
	texts := []string{b.replaced(t, text, s.swaps)}
	for _, more := range s.also {
		texts = append(texts, b.replaced(t, texts[0], more))
	}
	limit := max(limit, b.limit)
	if s.serves == "" && !s.joins && !s.ends {
		ctx := testenv.Within(t, limit)
		args := b.args(texts[0])
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdin = b.dir, append(harness.CleanEnvironment(), b.env...), strings.NewReader(s.input)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		require.NoError(t, cmd.Run(), "%s\n%s\n%s", texts[0], &out, &log)
		if s.check != nil {
			s.check(t, b, out.String())
		}
		return
	}
	var first *harness.Process
	for i, text := range texts {
		p, err := harness.StartProcess(b.env, b.args(text)...)
		require.NoError(t, err)
		t.Cleanup(func() { end(p) })
		if i == 0 {
			first = p
		}
		if s.ends {
			b.ending = append(b.ending, p)
		}
	}
	if s.serves == "" {
		return
	}
	ctx := testenv.Within(t, limit)
	scheme := "http://"
	if strings.Contains(text, "--tls-cert") {
		scheme = "https://"
	}
	require.NoError(t, harness.Until(ctx, "an answer of "+text, func() (bool, string) {
		return b.status(t, scheme+b.name(s.serves)+"/readyz") == http.StatusOK || !first.Running(), first.Log.String()
	}))
	require.True(t, first.Running(), "%s: %s", text, first.Log)
	if s.check != nil {
		s.check(t, b, "")
	}
}

// args is the command that runs text in the folder.
func (b *bed) args(text string) []string {
	if b.shell != nil {
		return b.shell(text)
	}
	return []string{"bash", "-ec", "cd " + b.dir + " && " + text}
}

// status is what a server answers, 0 if it does not.
func (b *bed) status(t *testing.T, url string) int {
	t.Helper()
	code, _ := b.get(t, url, "")
	return code
}

// get is what a server answers to one with a key.
func (b *bed) get(t *testing.T, url, key string) (status int, body string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // curl checks the certificate
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(text)
}

// end ends a server as an operator does, and what is left of it.
func end(p *harness.Process) {
	_ = p.Signal(syscall.SIGINT) // it may have ended
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_, _ = p.Wait(ctx)
	p.End()
}
