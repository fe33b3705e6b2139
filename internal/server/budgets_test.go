package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/node"
)

// TestBudgetsOfTheDocument: docs/operations.md has the table of budgets that the
// program has, and /metrics shows limit and use of each.
func TestBudgetsOfTheDocument(t *testing.T) {
	o := &Options{Format: "auto", MaxBody: 1 << 20, Engine: engine.Options{MaxActive: 2, QueueLength: 3, CacheEntries: 4}}
	disk, err := Disk{Dir: filepath.Join(t.TempDir(), "cache"), Budget: 1 << 20}.open()
	require.NoError(t, err)
	t.Cleanup(disk.close)
	o.Engine.Disk = disk.store
	level, err := cpu.ParseLevel("auto")
	require.NoError(t, err)
	of := node.Options{MaxTokens: 64, Compute: node.Compute{Backend: node.CPUBackend}, Level: level, Threads: 1, Sequences: 6, Tokenizes: true, Plans: io.Discard}
	n := node.New(of)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Close)
	server := api.NewServer(http.NotFoundHandler(), api.ServerOptions{})
	e, c, err := o.engineOn(n, of, o.Engine, disk, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })

	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Host = "localhost"
	api.New(c).ServeHTTP(w, r)
	text := testenv.ReadFile(t, "../../docs/operations.md")
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
