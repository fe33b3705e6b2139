package npm

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestInstall: of several that install at once one calls npm, none returns
// before it is done, and another lock file is installed again.
func TestInstall(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nset -e\nmkdir node_modules/unfinished\necho called >>calls\necho package >node_modules/package\nrmdir node_modules/unfinished\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o700))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o700))
	calls := ""
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte(version), 0o600))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := Install(t.Context(), dir); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(dir, "node_modules/package")); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(dir, "node_modules/unfinished")); err == nil {
					t.Error("npm is still at work")
				}
			})
		}
		all.Wait()
		calls += "called\n"
		text := testenv.ReadFile(t, filepath.Join(dir, "calls"))
		require.Equal(t, calls, string(text))
	}
}
