package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/pull"
)

// TestPullCommand fetches a file and prints its path; what cannot work has exit code
// 2, what may work later 1, both with one line.
func TestPullCommand(t *testing.T) {
	content := append([]byte("GGUF"), bytes.Repeat([]byte{7}, 100_000)...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/m.gguf":
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		case "/broken.gguf":
			w.WriteHeader(http.StatusTeapot)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	out, err := command(t, "pull", server.URL+"/m.gguf", "--dir", dir, "--connections", "2")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "m.gguf")+"\n", out)
	got, err := os.ReadFile(filepath.Join(dir, "m.gguf"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))

	t.Setenv("HF_ENDPOINT", server.URL)
	for want, args := range map[string][]string{
		"0 arguments":            {},
		"2 arguments":            {"hf:a/b", "hf:a/c"},
		"names no repository":    {"hf:nobody"},
		"not the name of a .ggu": {server.URL + "/m.bin"},
		"--connections is":       {server.URL + "/m.gguf", "--connections", "99"},
		"expected a whole":       {server.URL + "/m.gguf", "--connections", "many"},
		"unknown flag":           {server.URL + "/m.gguf", "--fast"},
		"check the name":         {"hf:a/b"},
		"has no /none.gguf":      {server.URL + "/none.gguf"},
	} {
		_, err := command(t, append([]string{"pull"}, args...)...)
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, exitCode(err), "%v", err)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err = command(t, "pull", server.URL+"/broken.gguf")
	require.ErrorContains(t, err, "418")
	require.Equal(t, 1, exitCode(err))
	require.Equal(t, 1, exitCode(errors.New("any other")))
}

// Without a terminal a pull writes a line now and then, with rate and time left, and
// with one a bar.
func TestPullReport(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	r := &pullReport{w: &out, now: func() time.Time { return now }}
	r.Begin("fetch", 10<<30, 2<<30)
	for range 4 {
		now = now.Add(10 * time.Second)
		r.Add(1 << 30)
	}
	r.Say("host: broken pipe; again in 1s")
	r.Add(-1 << 30)
	r.End()
	require.Equal(t, []string{
		"2.00 GiB of 10.00 GiB are there",
		"fetching: 5.00 GiB of 10.00 GiB (50%), 102.4 MiB/s, 50s left",
		"host: broken pipe; again in 1s",
		"fetching: 5.00 GiB of 10.00 GiB (50%), 76.8 MiB/s, 1m7s left",
		"",
	}, strings.Split(out.String(), "\n"))

	out.Reset()
	r = &pullReport{w: &out, now: time.Now, terminal: true}
	r.Begin("check", 1000, 0)
	r.Add(400)
	r.Add(-100)
	r.Add(700)
	r.End()
	require.Contains(t, out.String(), "checking SHA-256")
	require.Contains(t, out.String(), "100%")
	require.True(t, strings.HasSuffix(out.String(), "\n"))
	var _ pull.Reporter = r
}
