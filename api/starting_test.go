package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStarting(t *testing.T) {
	h := Starting(func() string { return "waiting for rank 1" })
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/healthz", 200, `{"status":"ok"}`},
		{"GET", "/readyz", 503, `{"status":"not ready","reason":"waiting for rank 1"}`},
		{"POST", "/v1/chat/completions", 503, `"code":"starting"`},
		{"GET", "/metrics", 503, "waiting for rank 1"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader("{}")))
		require.Equal(t, c.status, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want)
		if c.status == http.StatusServiceUnavailable && c.path != "/readyz" {
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
	}
}
