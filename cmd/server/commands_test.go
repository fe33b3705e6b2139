package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/host"
	"ringmaster/model/synthetic"
)

// command runs the program with arguments and returns its standard output.
func command(t *testing.T, args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append(args, "--log", "error"))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestLogitsCommand(t *testing.T) {
	dir := t.TempDir()
	ids := filepath.Join(dir, "ids.txt")
	require.NoError(t, os.WriteFile(ids, []byte(" 1 2\n3 4 5\t6\n7 8 9 10"), 0o644))
	logits := func(args ...string) []byte {
		out := filepath.Join(dir, "out.f32")
		_, err := command(t, append([]string{"logits", "--tokens", ids, "--out", out}, args...)...)
		require.NoError(t, err)
		data, err := os.ReadFile(out)
		require.NoError(t, err)
		return data
	}
	whole := logits()
	require.NotEmpty(t, whole)
	require.Zero(t, len(whole)%(10*4), "ten rows of float32")
	require.Equal(t, whole, logits("--batch", "1", "--threads", "2"))
	require.Equal(t, whole, logits("--batch", "3", "--threads", "1"))
	require.NotEqual(t, whole, logits("--reduce", "exact"))
	require.Len(t, logits("--simd", "portable"), len(whole))
	rounded := logits("--activations", "8")
	require.NotEqual(t, whole, rounded)
	require.Equal(t, rounded, logits("--activations", "8", "--batch", "3", "--threads", "1"))

	require.NoError(t, os.WriteFile(ids, []byte("1 x"), 0o644))
	_, err := command(t, "logits", "--tokens", ids, "--out", filepath.Join(dir, "o"))
	require.ErrorContains(t, err, `token 1 is "x"`)
	require.NoError(t, os.WriteFile(ids, []byte("1 99999999"), 0o644))
	_, err = command(t, "logits", "--tokens", ids, "--out", filepath.Join(dir, "o"))
	require.ErrorContains(t, err, "token 99999999 at position 1")
	require.NoError(t, os.WriteFile(ids, []byte(strings.Repeat("1 ", 200)), 0o644))
	_, err = command(t, "logits", "--tokens", ids, "--out", filepath.Join(dir, "o"), "--ctx", "128")
	require.ErrorContains(t, err, "has 200 token ids; the context holds 128")
	require.Equal(t, 2, exitCode(err))
}

func TestTokenizeCommand(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetIn(strings.NewReader(`{"text":"Hello <｜User｜>"}`))
	root.SetArgs([]string{"tokenize"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	var line struct{ IDs []int32 }
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
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
	ids := filepath.Join(t.TempDir(), "ids.txt")
	require.NoError(t, os.WriteFile(ids, []byte("1"), 0o644))
	if mem.Total > 800<<30 {
		t.Skip("NOT CHECKED: this host has enough memory")
	}
	_, err = command(t, "logits", "--model", path, "--tokens", ids, "--out", filepath.Join(t.TempDir(), "o"))
	require.ErrorContains(t, err, "--memory unlimited")
	_, err = command(t, "logits", "--model", path, "--tokens", ids, "--out", filepath.Join(t.TempDir(), "o"), "--ctx", "1048576", "--max-batch", "1000000")
	require.ErrorContains(t, err, "Use a smaller --ctx or --max-batch")
}

// TestServeAndShutDown checks that serve answers, with and without the API key,
// until its context ends.
func TestServeAndShutDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"--listen", addr, "--threads", "1", "--log", "error", "--api-key", "secret"})
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()

	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for ready := false; !ready; {
		select {
		case err := <-done:
			require.NoError(t, err, "serve ended")
		case <-deadline.C:
			require.Fail(t, "not ready within a minute")
		case <-retry.C:
			if r, err := http.Get("http://" + addr + "/readyz"); err == nil {
				ready = r.StatusCode == http.StatusOK
				r.Body.Close()
			}
		}
	}
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
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-deadline.C:
		require.Fail(t, "serve did not end")
	}
}
