package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ringmaster/api"

	"github.com/stretchr/testify/require"
)

// TestFilesThatOthersMayRead: files about users are readable for the server's user only;
// if one existed with more rights, the log says how to fix that.
func TestFilesThatOthersMayRead(t *testing.T) {
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	audit := func() {
		a, err := api.OpenAudit(path)
		require.NoError(t, err)
		a.Close()
	}
	dir := filepath.Join(t.TempDir(), "cache")
	cache := func() {
		c, err := Disk{Dir: dir, Budget: 1 << 20}.open()
		require.NoError(t, err)
		c.close()
	}
	for path, open := range map[string]func(){path: audit, dir: cache} {
		open()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077)
		require.Empty(t, text.String())
		require.NoError(t, os.Chmod(path, 0o755))
		open()
		require.Contains(t, text.String(), `remedy="chmod o-rwx `+path)
		text.Reset()
		require.NoError(t, os.Chmod(path, 0o750))
		open()
		require.Empty(t, text.String(), "a group is somebody's choice")
	}
}
