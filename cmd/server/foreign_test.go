package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/keys"
	"ringmaster/internal/trust"
)

// TestForeignFiles: settings and keys of another user, or behind a link of such a user, are
// refused with exit code 2; keys that become so while the server runs are not valid any more.
func TestForeignFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make files that belong to root")
	}
	dir := t.TempDir()
	settings, list := filepath.Join(dir, "ringmaster.toml"), filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(settings, []byte("[simulate]\nprefill = 4\n"), 0o600))
	secret := keys.New()
	alice := keys.Key{Name: "alice", Hash: keys.Hash(secret)}
	require.NoError(t, os.WriteFile(list, []byte(alice.Line()), 0o600))
	refused := func(args ...string) {
		t.Helper()
		_, err := command(t, args...)
		require.ErrorIs(t, err, trust.ErrForeign)
		require.Equal(t, 2, exitCode(err))
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0") // ends a server that goes too far
	require.NoError(t, err)
	defer taken.Close()
	serve := []string{"serve", "--listen", taken.Addr().String(), "--api-keys"}

	_, err = command(t, "config", "simulate", "--config", settings)
	require.NoError(t, err)
	link := filepath.Join(dir, "link")
	for _, path := range []string{settings, list} {
		require.NoError(t, os.Symlink(path, link))
		use := append(serve, link)
		if path == settings {
			use = []string{"config", "simulate", "--config", link}
			_, err := command(t, use...)
			require.NoError(t, err, "a link of root's")
		}
		require.NoError(t, os.Lchown(link, 65534, -1))
		refused(use...)
		require.NoError(t, os.Remove(link))
	}
	later := time.Duration(0)
	ring, err := keys.Open(keys.Options{File: list, Now: func() time.Time { return time.Now().Add(later) }})
	require.NoError(t, err)
	require.NotNil(t, ring.Find(secret))
	for _, path := range []string{settings, list} {
		require.NoError(t, os.Chown(path, 65534, -1))
	}
	refused("config", "simulate", "--config", settings)
	refused(append(serve, list)...)
	later = time.Minute // the file is looked at again
	require.Nil(t, ring.Find(secret))
	refused("key", "new", "bob", "--api-keys", list)
}
