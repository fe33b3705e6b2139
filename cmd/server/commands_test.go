package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/host"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

// command runs the program with arguments and returns its standard output.
func command(t *testing.T, args ...string) (string, error) {
	out, _, err := logged(t, "", append(args, "--log", "error")...)
	return out, err
}

// logged runs the program with arguments and a standard input, and returns what it prints
// and what it logs.
func logged(t *testing.T, in string, args ...string) (out, log string, err error) {
	root := newRoot()
	var stdout, stderr bytes.Buffer
	root.SetIn(strings.NewReader(in))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// written writes a file with a text and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "file"), text)
	return path
}

// tinyModel writes the smallest synthetic model, after change if there is one, and returns
// its path.
func tinyModel(t *testing.T, change func(*synthetic.Config)) string {
	t.Helper()
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	if change != nil {
		change(&c)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	return path
}

// logitsOf runs the command logits on token ids and returns what it writes.
func logitsOf(t *testing.T, ids string, args ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.f32")
	_, err := command(t, append([]string{"logits", "--tokens", written(t, ids), "--out", out}, args...)...)
	require.NoError(t, err)
	data := testenv.ReadFile(t, out)
	return data
}

func TestLogitsCommand(t *testing.T) {
	run := func(args ...string) []byte { return logitsOf(t, " 1 2\n3 4 5\t6\n7 8 9 10", args...) }
	whole := run()
	require.NotEmpty(t, whole)
	require.Zero(t, len(whole)%(10*4), "ten rows of float32")
	require.Equal(t, whole, run("--batch", "1", "--threads", "2"))
	require.Equal(t, whole, run("--batch", "3", "--threads", "1"))
	require.NotEqual(t, whole, run("--reduce", "exact"))
	require.Len(t, run("--simd", "portable"), len(whole))
	rounded := run("--activations", "8")
	require.NotEqual(t, whole, rounded)
	require.Equal(t, rounded, run("--activations", "8", "--batch", "3", "--threads", "1"))

	refused := func(ids, want string) error {
		_, err := command(t, "logits", "--tokens", written(t, ids), "--out", filepath.Join(t.TempDir(), "o"), "--ctx", "128")
		require.ErrorContains(t, err, want)
		return err
	}
	_ = refused("1 x", `token 1 is "x"`)
	_ = refused("1 99999999", "token 99999999 at position 1")
	require.Equal(t, 2, exitCode(refused(strings.Repeat("1 ", 200), "has 200 token ids; the context holds 128")))
}

func TestTokenizeCommand(t *testing.T) {
	out, _, err := logged(t, `{"text":"Hello <｜User｜>"}`, "tokenize")
	require.NoError(t, err)
	line := testenv.FromJSON[struct{ IDs []int32 }](t, out)
	require.NotEmpty(t, line.IDs)
}

// TestPlanRefuses checks that a model too large for the host is rejected before
// anything is loaded, with the remedies.
func TestPlanRefuses(t *testing.T) {
	mem, known := host.ReadMemory()
	if !known {
		t.Skip("NOT CHECKED: the memory of this system is unknown")
	}
	c, err := synthetic.Preset("pro")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pro.gguf")
	if _, err := c.WriteFile(path); err != nil {
		t.Skipf("NOT CHECKED: cannot write a sparse file of 900 GB here: %v", err)
	}
	if mem.Total > 800<<30 {
		t.Skip("NOT CHECKED: this host has enough memory")
	}
	args := []string{"logits", "--model", path, "--tokens", written(t, "1"), "--out", filepath.Join(t.TempDir(), "o")}
	_, err = command(t, args...)
	require.ErrorContains(t, err, "--memory unlimited")
	_, err = command(t, append(args, "--ctx", "1048576", "--max-batch", "1000000")...)
	require.ErrorContains(t, err, "Use a smaller --ctx or --max-batch")
}

// TestServeAndShutDown checks that serve answers, with and without the API key,
// until its context ends.
func TestServeAndShutDown(t *testing.T) {
	addr := testenv.LoopbackAddr(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done, _ := start(ctx, "--listen", addr, "--threads", "1", "--api-key", "secret")

	require.Eventually(t, func() bool {
		select {
		case err := <-done:
			t.Errorf("serve ended: %v", err)
			return true
		default:
		}
		r, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, groupLimit, 20*time.Millisecond, "not ready within a minute")
	ask := func(key string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions",
			strings.NewReader(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":4}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		r, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer r.Body.Close()
		_, err = io.Copy(io.Discard, r.Body)
		require.NoError(t, err)
		return r.StatusCode
	}
	require.Equal(t, http.StatusOK, ask("secret"))
	require.Equal(t, http.StatusUnauthorized, ask("wrong"))

	stop()
	require.NoError(t, await(t, done))
}
