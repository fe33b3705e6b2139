package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// packed is a body in a content coding.
func packed(t testing.TB, coding, body string) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "zstd" {
		z, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		w = z
	}
	_, err := io.WriteString(w, body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// Compressed bodies mean what they mean plain; other codings are named.
func TestContentCodings(t *testing.T) {
	e := answering("ok")
	h := New(testConfig(e))
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 100) + `"}]}`
	for _, coding := range []string{"gzip", "zstd"} {
		w := call(h, "POST", "/v1/chat/completions", packed(t, coding, body), "Content-Encoding", coding)
		require.Equal(t, 200, w.Code, w.Body)
		require.Contains(t, withControls(e.last().Prompt), "word word")
		for _, broken := range []string{"", "x", packed(t, coding, body)[:40], packed(t, coding, body) + "x", body} {
			w := call(h, "POST", "/v1/chat/completions", broken, "Content-Encoding", coding, "Content-Type", "application/json")
			require.Equal(t, 400, w.Code, "%s %.20q: %s", coding, broken, w.Body)
		}
	}
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", string(z.EncodeAll([]byte(body), nil)), "Content-Encoding", "ZSTD").Code)
	require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", body, "Content-Encoding", "identity").Code)
	for _, coding := range []string{"br", "deflate", "gzip, zstd", strings.Repeat("x", 1000)} {
		w := call(h, "POST", "/v1/chat/completions", body, "Content-Encoding", coding)
		require.Equal(t, 415, w.Code)
		require.Equal(t, "gzip, zstd", w.Header().Get("Accept-Encoding"))
		require.Contains(t, errorOf(t, w).Message, coding[:min(len(coding), 10)])
		require.Less(t, w.Body.Len(), 400)
	}
}

// A body that expands beyond the limit is refused when it does, with bounded memory, and
// its share of the budget returns.
func TestContentCodingsAreBounded(t *testing.T) {
	c := testConfig(answering("ok"))
	c.MaxBody, c.BodyBudget = 1<<20, 4<<20
	s := newServer(c)
	h := s.handler()
	bomb := `{"messages":[{"role":"user","content":"` + strings.Repeat(" ", 64<<20) + `"}]}`
	for _, coding := range []string{"gzip", "zstd"} {
		small := packed(t, coding, bomb)
		require.Less(t, len(small), 1<<20)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(small))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", coding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		require.Equal(t, 413, w.Code, w.Body)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(24<<20), coding)
		used, _ := s.bodies.usage()
		require.Zero(t, used, coding)
	}
	w := call(h, "POST", "/v1/chat/completions", packed(t, "zstd", `{`+user+`}`), "Content-Encoding", "zstd")
	require.Contains(t, []int{200, 413}, w.Code) // a stream of zstd may have a window of 8 MiB
	used, _ := s.bodies.usage()
	require.Zero(t, used)
}
