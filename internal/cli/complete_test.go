package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
)

// TestComplete: completions propose the words of a flag, and for --model the models and
// folders that are there, of a split model the first part.
func TestComplete(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "notes.txt", ".hidden.gguf", "sub/c.gguf"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	t.Chdir(dir)
	complete := func(args ...string) (values []string, directive string) {
		root := &cobra.Command{Use: "demo"}
		serve := &cobra.Command{Use: "serve", RunE: func(*cobra.Command, []string) error { return nil }}
		var model, backend, share, key string
		flags.File(serve.Flags(), &model, "model,m", "file")
		flags.OneOf(serve.Flags(), &backend, "backend", "auto", []string{"auto", "cpu", "metal", "vulkan"}, "backend")
		flags.Propose(flags.Typed(serve.Flags(), &share, "share", "auto", "a share", func(s string) (string, error) { return s, nil }, "share"), "auto", "all")
		flags.Text(serve.Flags(), &key, "key", "", "key")
		root.AddCommand(serve)
		cli.Complete(root)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete", "serve"}, args...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return lines[:len(lines)-1], lines[len(lines)-1]
	}
	const noFiles, noFilesNoSpace = ":4", ":6"
	for _, c := range []struct {
		args      []string
		want      []string
		directive string
	}{
		{[]string{"--backend", ""}, []string{"auto", "cpu", "metal", "vulkan"}, noFiles},
		{[]string{"--share", "a"}, []string{"auto", "all"}, noFiles},
		{[]string{"--key", ""}, []string{}, noFiles},
		{[]string{"--model", ""}, []string{"a.gguf", "b-00001-of-00002.gguf", "sub/"}, noFilesNoSpace},
		{[]string{"-m", "b"}, []string{"b-00001-of-00002.gguf"}, noFiles},
		{[]string{"--model", "sub/"}, []string{"sub/c.gguf"}, noFiles},
		{[]string{"--model", "none/x"}, []string{}, noFiles},
	} {
		values, directive := complete(c.args...)
		require.Equal(t, c.want, values, "%q", c.args)
		require.Equal(t, c.directive, directive, "%q", c.args)
	}
}
