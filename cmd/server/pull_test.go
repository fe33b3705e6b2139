package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
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
	got := testenv.ReadFile(t, filepath.Join(dir, "m.gguf"))
	require.True(t, bytes.Equal(content, got))

	t.Setenv("HF_ENDPOINT", server.URL)
	for want, args := range map[string][]string{
		"0 arguments":            {},
		"2 arguments":            {"hf:a/b", "hf:a/c"},
		"names no repository":    {"hf:someone"},
		"not the name of a .ggu": {server.URL + "/m.bin"},
		"--connections is":       {server.URL + "/m.gguf", "--connections", "99"},
		"expected a whole":       {server.URL + "/m.gguf", "--connections", "many"},
		"unknown flag":           {server.URL + "/m.gguf", "--fast"},
		"check the name":         {"hf:a/b"},
		"has no /none.gguf":      {server.URL + "/none.gguf"},
	} {
		_, err := command(t, append([]string{"pull"}, args...)...)
		requireRefused(t, err, want, want)
	}
	_, err = command(t, "pull", server.URL+"/broken.gguf")
	require.ErrorContains(t, err, "418")
	require.Equal(t, 1, exitCode(err))
	require.Equal(t, 1, exitCode(errors.New("any other")))
}
