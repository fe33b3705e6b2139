package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

// TestShareCommand copies a split model to two ranks, over links with a key; what they
// print can be opened, and has the tokens of the original.
func TestShareCommand(t *testing.T) {
	model := tinyModel(t, func(c *synthetic.Config) { c.Parts = 3 })
	files, err := filepath.Glob(filepath.Dir(model) + "/*.gguf")
	require.NoError(t, err)
	key := written(t, "a secret of enough bytes")
	at := testenv.LoopbackAddr(t)
	share := func(number int, args ...string) (<-chan error, *bytes.Buffer) {
		return start(t.Context(), append([]string{"share", "--coordinator", at, "--rank", fmt.Sprint(number), "--world-size", "3",
			"--cluster-key-file", key}, args...)...)
	}
	one, two := t.TempDir(), t.TempDir()
	first, printed := share(1, "--dir", one)
	second, _ := share(2, "--dir", two)
	leader, nothing := share(0, files[0])
	for _, end := range []<-chan error{leader, first, second} {
		require.NoError(t, await(t, end))
	}
	require.Empty(t, nothing.String())
	paths := strings.Fields(printed.String())
	require.Len(t, paths, 3)
	for i, p := range files {
		want := testenv.ReadFile(t, p)
		for _, dir := range []string{one, two} {
			got := testenv.ReadFile(t, filepath.Join(dir, filepath.Base(p)))
			require.True(t, bytes.Equal(want, got))
		}
		require.Equal(t, filepath.Join(one, filepath.Base(p)), paths[i])
	}
	f, err := gguf.Open(paths[0])
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestShareUsage: what cannot work has exit code 2 and one line.
func TestShareUsage(t *testing.T) {
	file := written(t, "no model")
	group := []string{"--coordinator", "127.0.0.1:9", "--world-size", "2"}
	for want, args := range map[string][]string{
		"rank 0 needs the FILE":       group,
		"give it --dir instead of":    append([]string{file, "--rank", "1"}, group...),
		"2 arguments":                 append([]string{file, file}, group...),
		"expected the number of rank": {file, "--coordinator", "127.0.0.1:9"},
		"--world-size is 1":           {file, "--coordinator", "127.0.0.1:9", "--world-size", "1"},
		"needs --coordinator":         {file, "--world-size", "2"},
		"unknown flag":                append([]string{file, "--threads", "2"}, group...),
		file:                          append([]string{file}, group...),
		"open the first part":         append([]string{"m-00002-of-00003.gguf"}, group...),
	} {
		_, err := command(t, append([]string{"share"}, args...)...)
		requireRefused(t, err, want, want)
	}
}
