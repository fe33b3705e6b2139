package rdmavm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInto: of several callers that need a folder at the same time one fills it;
// the others get it complete, and it does not change while they use it.
func TestInto(t *testing.T) {
	m := &machine{cache: t.TempDir()}
	at := filepath.Join(m.cache, "tree-of-some-packages")
	failing := errors.New("no network")
	require.ErrorIs(t, m.into(t.Context(), at, func(string) error { return failing }), failing)
	require.NoDirExists(t, at)
	filled := 0
	fill := func(dir string) error {
		filled++ // no race: the lock is held
		for _, f := range []string{"tree/usr/bin/first", "tree/usr/lib/last"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := m.into(context.Background(), at, fill); err != nil {
				t.Error(err)
			}
			if !isFile(filepath.Join(at, "usr/lib/last")) {
				t.Error("the folder is not complete")
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, filled)
	left, err := filepath.Glob(filepath.Join(m.cache, "new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
