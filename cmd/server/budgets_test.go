package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/engine"
)

// TestBudgetsOfTheDocument: docs/operations.md has the table of budgets that the
// program has, and /metrics shows limit and use of each.
func TestBudgetsOfTheDocument(t *testing.T) {
	m, o := &modelOptions{batch: 64, backend: "cpu", simd: bestLevel(t), threads: 1}, &serveOptions{format: "auto", maxBody: 1 << 20}
	o.engine = engine.Options{MaxActive: 2, QueueLength: 3, Sessions: 4}
	o.disk = diskOptions{given: filepath.Join(t.TempDir(), "cache") + "=1MiB"}
	var err error
	o.engine.Disk, err = o.disk.open()
	require.NoError(t, err)
	t.Cleanup(func() { o.disk.close(o.engine.Disk) })
	m.tokenizes = true
	l, err := m.load(t.Context(), io.Discard, 6)
	require.NoError(t, err)
	t.Cleanup(l.close)
	server := api.NewServer(http.NotFoundHandler(), api.ServerOptions{})
	e, c, err := o.engineOn(m, l, o.engine, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, server, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })

	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Host = "localhost"
	api.New(c).ServeHTTP(w, r)
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Budgets\n")
	require.True(t, found)
	var want []string
	for _, b := range api.Budgets(c) {
		want = append(want, "| "+b.Name+" | "+b.Set+" | "+b.Refusal+" |")
		label := `{budget="` + b.Name + `"} `
		require.Contains(t, w.Body.String(), "ringmaster_budget_limit"+label)
		require.NotContains(t, w.Body.String(), "ringmaster_budget_limit"+label+"0\n")
		require.Equal(t, b.Used != nil, strings.Contains(w.Body.String(), "ringmaster_budget_used"+label), b.Name)
		require.Equal(t, b.Refused != nil, strings.Contains(w.Body.String(), "ringmaster_budget_refused_total"+label), b.Name)
	}
	var got []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	require.NotEmpty(t, got)
	require.Equal(t, strings.Join(want, "\n"), strings.Join(got[1:], "\n"))
}
