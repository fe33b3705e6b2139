package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestModelIsFetched: a --model that is an address is fetched into the cache of the user and
// then run; the next start asks no server. What cannot be fetched has exit code 2.
func TestModelIsFetched(t *testing.T) {
	content := testenv.ReadFile(t, tinyModel(t, nil))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/m.gguf" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	first := logitsOf(t, "1 2 3", "--model", server.URL+"/m.gguf")
	kept, err := filepath.Glob(filepath.Join(cache, "ringmaster/models/*/m.gguf"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	_, err = command(t, "logits", "--tokens", written(t, "1"), "--out", filepath.Join(t.TempDir(), "o"), "--model", server.URL+"/none.gguf")
	requireRefused(t, err, "a file that is not there", "--model: ", "has no /none.gguf")
	server.Close()
	require.Equal(t, first, logitsOf(t, "1 2 3", "--model", server.URL+"/m.gguf"))

	require.NoError(t, os.Unsetenv("XDG_CACHE_HOME"))
	t.Setenv("HOME", "")
	_, err = command(t, "serve", "--model", "hf:owner/repo:Q4_K_M")
	requireRefused(t, err, "no folder", "set XDG_CACHE_HOME")
}
