package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackagedFlags: the flags that the files of packaging give to serve exist, and so do
// the variables for them.
func TestPackagedFlags(t *testing.T) {
	serve, _, err := newRoot().Find([]string{"serve"})
	require.NoError(t, err)
	flags := regexp.MustCompile(`(?:^|[\s("'>])--([a-z][a-z-]+)`)
	// In files that call other programs too, the lines that call ours and their continuation lines.
	known := map[string]int{}
	for _, dir := range []string{"kubernetes", "slurm"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../../packaging", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			ours := regexp.MustCompile(`(?m)^.*(?:exec ringmaster serve|flags\+?=\(|--coordinator|--cluster-key-file|--model).*$`)
			for _, line := range ours.FindAllString(string(text), -1) {
				for _, m := range flags.FindAllStringSubmatch(line, -1) {
					require.NotNil(t, serve.Flags().Lookup(m[1]), "%s: --%s", path, m[1])
					known[path]++
				}
			}
			return nil
		}))
	}
	require.Len(t, known, 2, "both files were read")
	for path, n := range known {
		require.GreaterOrEqual(t, n, 6, path)
	}
}
