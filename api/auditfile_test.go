package api

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

type fullDisk struct{ err error }

func (f *fullDisk) Write(p []byte) (int, error) { return len(p), f.err }
func (f *fullDisk) Close() error                { return nil }

// TestAuditLog: lines are appended to what is there, and a disk that is full is in
// the server's log once.
func TestAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	for range 2 {
		a, err := OpenAudit(path)
		require.NoError(t, err)
		a.Logger().Info("used", "key", "alice")
		a.Close()
	}
	text := testenv.ReadFile(t, path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 2)
	for _, l := range lines {
		m := testenv.FromJSON[map[string]any](t, l)
		require.Equal(t, "alice", m["key"])
	}

	full := &fullDisk{errors.New("no space left")}
	a := &AuditFile{file: full}
	for range 3 {
		a.Logger().Info("used")
	}
	require.True(t, a.broken.Load())
	full.err = nil
	a.Logger().Info("used")
	require.False(t, a.broken.Load())
}
