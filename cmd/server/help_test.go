package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// commandsOf lists a command and those below it.
func commandsOf(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, s := range c.Commands() {
		out = append(out, commandsOf(s)...)
	}
	return out
}

// TestHelp: every command's help fits the width, lists every flag that it has, once,
// and those who run a model list them by groups.
func TestHelp(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		path := strings.Fields(c.CommandPath())[1:]
		help, err := command(t, append(path, "--help")...)
		require.NoError(t, err)
		for i, line := range strings.Split(help, "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth, "%v, line %d: %s", path, i, line)
		}
		for _, f := range strings.Fields(c.LocalFlags().FlagUsages()) {
			if strings.HasPrefix(f, "--") {
				require.Contains(t, help, f)
			}
		}
		if c.Flags().Lookup("world-size") == nil {
			require.NotContains(t, help, "Cluster:")
			continue
		}
		for _, g := range flagGroups {
			if c.Name() != sharingName || g.title == "Cluster" { // which uses no model
				require.Contains(t, help, "\n"+g.title+":\n")
			}
		}
		require.Equal(t, 1, strings.Count(help, "      --world-size int"))
	}
}

// TestExamples: every command has an example, whose commands and flags there are.
func TestExamples(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		require.NotEmpty(t, c.Example, c.CommandPath())
		for line := range strings.SplitSeq(c.Example, "\n") {
			_, line, ok := strings.Cut(line, "ringmaster")
			require.True(t, ok, c.CommandPath())
			line, _, _ = strings.Cut(line, ">")
			line, _, _ = strings.Cut(line, "<")
			root := harmless(newRoot())
			root.SetArgs(append(strings.Fields(line), "--config", "none"))
			if err := root.ExecuteContext(t.Context()); err != nil {
				require.ErrorIs(t, err, errRan, "%s: %s", c.CommandPath(), line)
			}
		}
	}
}

// TestGroupsNameFlags: a flag that is renamed does not leave its name in a group.
func TestGroupsNameFlags(t *testing.T) {
	serve, _, err := newRoot().Find([]string{"serve"})
	require.NoError(t, err)
	for _, g := range flagGroups {
		for name := range strings.FieldsSeq(g.names) {
			require.NotNil(t, serve.Flags().Lookup(name), "%s: --%s", g.title, name)
		}
	}
}

// TestUsageErrors: input that cannot work is exit code 2 with one line, for every
// command.
func TestUsageErrors(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		path := strings.Fields(c.CommandPath())[1:]
		_, err := command(t, append(path, "--no-such-flag")...)
		require.ErrorContains(t, err, "--no-such-flag")
		require.ErrorContains(t, err, "--help")
		require.Equal(t, 2, exitCode(err))
		require.NotContains(t, err.Error(), "\n")
	}
}

// TestWrongValues: what a command finds wrong with a flag or a file before it begins
// is exit code 2, from the command line and from the environment.
func TestWrongValues(t *testing.T) {
	for _, args := range []string{
		"serve --listen 127.0.0.1:0 --max-active 0", "serve --listen 127.0.0.1:0 --api-key \x01", "serve --listen 127.0.0.1:0 --key-weights 1,2",
		"serve --listen 127.0.0.1:0 --max-connections -1", "serve --listen 127.0.0.1:0 --chat-format none", "serve --listen 127.0.0.1:0 --tls-key x",
		"serve --world-size 9 --distributed", "serve --listen 127.0.0.1:0 --model nothing.gguf", "serve --listen=", "serve extra",
		"bench --model nothing.gguf", "bench --reduce mean", "tokenize --model nothing.gguf", "bench --backend none", "bench --simd none",
		"bench --ctx -1", "bench --max-batch 0", "rails plan one.json", "--no-such-flag",
	} {
		_, err := command(t, strings.Fields(args)...)
		require.Error(t, err, args)
		require.Equal(t, 2, exitCode(err), "%s: %v", args, err)
		require.NotContains(t, strings.TrimSpace(err.Error()), "\n")
	}
	t.Setenv("RINGMASTER_CTX", "many")
	_, err := command(t, "bench")
	require.ErrorContains(t, err, "RINGMASTER_CTX")
	require.Equal(t, 2, exitCode(err))
}
