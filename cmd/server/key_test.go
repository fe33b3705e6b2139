package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/keys"
	"ringmaster/internal/testenv"
)

// TestKeyNew: the key that is printed is that of the line in the file, and is itself
// in no file.
func TestKeyNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	run := func(args ...string) (string, error) {
		out, _, err := logged(t, "", append([]string{"key", "new"}, args...)...)
		return strings.TrimSpace(out), err
	}
	secret, err := run("alice", "--api-keys", path, "--requests", "60/minute", "--tokens", "5000/day", "--expires", "2999-12-31", "--weight", "3", "--share-cache")
	require.NoError(t, err)
	t.Setenv("RINGMASTER_API_KEYS", path)
	second, err := run("bob")
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text := testenv.ReadFile(t, path)
	require.NotContains(t, string(text), secret)
	ring, err := keys.Open(keys.Options{File: path})
	require.NoError(t, err)
	require.Equal(t, "alice", ring.Find(secret).Name)
	require.Equal(t, "60/minute", ring.Find(secret).Requests.String())
	require.Equal(t, "5000/day", ring.Find(secret).Tokens.String())
	require.Equal(t, 3000, ring.Find(secret).Expires.Year())
	require.Equal(t, 3, ring.Find(secret).Weight)
	require.True(t, ring.Find(secret).Shared)
	require.Equal(t, "bob", ring.Find(second).Name)
	require.False(t, ring.Find(second).Shared)

	for _, c := range []struct{ args, want string }{
		{"bob", "has a key of the name bob"}, {"", "0 arguments"}, {"a b", "2 arguments"}, {"-- -x", "1 to 64 letters"},
		{"c --requests 1/week", "--requests is"}, {"c --tokens 1/day", "--tokens is"}, {"c --weight 0", "--weight is"}, {"c --expires 2001-01-01", "in the past"}, {"c --expires x", "--expires is"},
		{"c --api-keys=", "--api-keys"},
	} {
		_, err := run(strings.Fields(c.args)...)
		requireRefused(t, err, c.args, c.want)
	}
	after := testenv.ReadFile(t, path)
	require.Equal(t, string(text), string(after), "refused commands leave the file as it was")
	list, err := keys.Parse(after)
	require.NoError(t, err)
	require.Len(t, list, 2)
}
