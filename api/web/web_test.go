package web

import (
	"io/fs"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(t *testing.T) []string {
	list, err := fs.ReadDir(files, "files")
	require.NoError(t, err)
	var out []string
	for _, f := range list {
		out = append(out, f.Name())
	}
	return out
}

// TestFiles checks the headers of every file, that a browser that has it gets 304, and
// that no file loads anything from elsewhere.
func TestFiles(t *testing.T) {
	types := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	for _, name := range names(t) {
		w := httptest.NewRecorder()
		require.True(t, File(w, httptest.NewRequest("GET", "/", nil), name))
		require.Equal(t, 200, w.Code)
		h := w.Header()
		require.Equal(t, types[path.Ext(name)], h.Get("Content-Type"), name)
		csp := h.Get("Content-Security-Policy")
		require.Contains(t, csp, "default-src 'none'")
		require.NotRegexp(t, `unsafe|\*|data:|https?:`, csp)
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache"} {
			require.Equal(t, want, h.Get(header), name)
		}
		text := w.Body.String()
		require.NotRegexp(t, `https?://|@import|url\(|//[a-z]+\.[a-z]`, strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, ""), name)
		require.NotRegexp(t, `(?i)\bon[a-z]+=|<script>|<style|\sstyle=|javascript:|\beval\(|new Function|document\.write`, text, name)

		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("If-None-Match", h.Get("ETag"))
		w = httptest.NewRecorder()
		require.True(t, File(w, r, name))
		require.Equal(t, 304, w.Code)
	}
	for _, name := range []string{"", ".", "..", "../web.go", "none.js", "files", "/chat.html"} {
		w := httptest.NewRecorder()
		require.False(t, File(w, httptest.NewRequest("GET", "/", nil), name), name)
		require.Empty(t, w.Header())
	}
}

// TestFilesAreThere checks that every file that the pages and their scripts load exists,
// and that no file is unused.
func TestFilesAreThere(t *testing.T) {
	used := map[string]bool{Chat: true, Cluster: true}
	loads := regexp.MustCompile(`(?:from "\./|(?:src|href)="/web/)([^"]+)"`)
	for _, name := range names(t) {
		text, err := files.ReadFile("files/" + name)
		require.NoError(t, err)
		for _, m := range loads.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
	}
	for _, name := range names(t) {
		require.True(t, used[name], "nothing loads %s", name)
		delete(used, name)
	}
	require.Empty(t, used, "files that are missing")
}
