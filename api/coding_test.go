package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// packed is a body in a content coding.
func packed(t testing.TB, coding, body string, options ...zstd.EOption) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "zstd" {
		z, err := zstd.NewWriter(&b, options...)
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

// A body of zstd may begin with frames without data.
func TestSkippableFrames(t *testing.T) {
	c := testConfig(answering("ok"))
	s := newServer(c)
	frame := "\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
	whole := packed(t, "zstd", `{`+user+`}`+strings.Repeat(" ", 100<<10)) // its window is not the smallest one
	for body, status := range map[string]int{frame + whole: 200, strings.Repeat(frame, 9) + whole: 200, frame: 400, frame[:9]: 400} {
		w := call(s.handler(), "POST", "/v1/chat/completions", body, "Content-Encoding", "zstd")
		require.Equal(t, status, w.Code, "%q: %s", body, w.Body)
		used, _ := s.bodies.usage()
		require.Zero(t, used)
	}
}

// A connection that fails while a compressed body is read is what it is for a plain one,
// wherever that happens.
func TestContentCodingsOfBrokenConnections(t *testing.T) {
	for _, coding := range []string{"", "gzip", "zstd"} {
		body := `{` + user + `}`
		if coding != "" {
			body = packed(t, coding, body)
		}
		for cut := range len(body) {
			for _, tt := range []struct {
				err    error
				status int
			}{{os.ErrDeadlineExceeded, 408}, {errors.New("reset"), 400}} {
				r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(body[:cut]), iotest.ErrReader(fmt.Errorf("read: %w", tt.err))))
				r.Header.Set("Content-Encoding", coding)
				w := httptest.NewRecorder()
				New(testConfig(answering("ok"))).ServeHTTP(w, r)
				require.Equal(t, tt.status, w.Code, "%s %d: %s", coding, cut, w.Body)
				if tt.status == 400 {
					require.Contains(t, w.Body.String(), "Could not read the request body: read: reset")
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(body[:cut]), shuttingDown{cancel}))
			r.Header.Set("Content-Encoding", coding)
			w := httptest.NewRecorder()
			New(testConfig(answering("ok"))).ServeHTTP(w, r)
			require.Equal(t, 503, w.Code, "%s %d: %s", coding, cut, w.Body)
		}
	}
}

// shuttingDown is a connection that ends with the server.
type shuttingDown struct{ cancel context.CancelCauseFunc }

// Read implements io.Reader.
func (e shuttingDown) Read([]byte) (int, error) {
	e.cancel(errShutdown)
	return 0, net.ErrClosed
}

// A body that expands beyond the limit is refused when it does, with bounded memory, and
// its share of the budget returns.
func TestContentCodingsAreBounded(t *testing.T) {
	c := testConfig(answering("ok"))
	c.MaxBody, c.BodyBudget = 1<<20, 4<<20
	s := newServer(c)
	h := s.handler()
	bomb := `{"messages":[{"role":"user","content":"` + strings.Repeat(" ", 64<<20) + `"}]}`
	small := zstd.WithWindowSize(1 << 16) // otherwise the header of the frame would tell
	for _, coding := range []string{"gzip", "zstd"} {
		small := packed(t, coding, bomb, small)
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
	for body, status := range map[string]int{packed(t, "zstd", `{`+user+`}`): 200, packed(t, "zstd", bomb): 413, packed(t, "zstd", bomb[:2<<20], zstd.WithWindowSize(2<<20)): 413} {
		w := call(h, "POST", "/v1/chat/completions", body, "Content-Encoding", "zstd")
		require.Equal(t, status, w.Code, w.Body)
		used, _ := s.bodies.usage()
		require.Zero(t, used)
	}
}
