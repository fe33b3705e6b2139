package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
			require.LessOrEqual(t, utf8.RuneCountInString(line), cli.HelpWidth, "%v, line %d: %s", path, i, line)
		}
		for _, f := range strings.Fields(c.LocalFlags().FlagUsages()) {
			if strings.HasPrefix(f, "--") {
				require.Contains(t, help, f)
			}
		}
		if !cli.RunsModel(c) {
			require.NotContains(t, help, "Cluster:")
			continue
		}
		for _, h := range headings {
			if c.Name() != sharingName || h == headingCluster { // which uses no model
				require.Contains(t, help, "\n"+h+":\n")
			}
		}
		require.Equal(t, 1, strings.Count(help, "      --data-port "))
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

// serving are the flags of the server itself, under the command's own heading.
const serving = `allow-host api-key api-keys audit-log chat-format config cors-origin help listen log
	max-body max-connections model-name strict-model-names tls-cert tls-key`

// underHeadings are the flags that a person looks for under each heading.
var underHeadings = map[string]string{
	headingModel:       `cache-dir cache-entries cache-timeout ctx max-batch memory model override-kv`,
	headingPerformance: `activations backend drafts keep-wired max-active queue simd threads token-latency`,
	headingCluster: `cluster-encrypt cluster-key-file connect-timeout coordinator data-port distributed
		on-loss peer-timeout rank rdma-devices rdma-in-process reduce share stages transport
		verify-model work-timeout world-size`,
}

// TestHeadings: a person finds every flag of a command that runs a model under its heading.
// A new flag fails here until its heading is decided. Other commands have one list.
func TestHeadings(t *testing.T) {
	want := map[string]string{}
	for name := range strings.FieldsSeq(serving) {
		want[name] = ""
	}
	for heading, names := range underHeadings {
		for name := range strings.FieldsSeq(names) {
			want[name] = heading
		}
	}
	for _, c := range commandsOf(newRoot()) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			switch heading := flags.Heading(f); {
			case !cli.RunsModel(c):
				require.Empty(t, heading, "%s --%s", c.CommandPath(), f.Name)
			case c.Name() == "serve":
				expected, ok := want[f.Name]
				require.True(t, ok, "--%s: under which heading does a person expect it?", f.Name)
				require.Equal(t, expected, heading, "--%s", f.Name)
			case want[f.Name] != "":
				require.Equal(t, want[f.Name], heading, "%s --%s", c.CommandPath(), f.Name)
			default:
				require.Empty(t, heading, "%s --%s", c.CommandPath(), f.Name)
			}
		})
	}
}

// TestUsageErrors: input that cannot work is exit code 2 with one line, for every
// command.
func TestUsageErrors(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		path := strings.Fields(c.CommandPath())[1:]
		_, err := command(t, append(path, "--no-such-flag")...)
		requireRefused(t, err, c.CommandPath(), "--no-such-flag", "--help")
	}
}

// TestWrongValues: what a command finds wrong with a flag or a file before it begins
// is exit code 2, from the command line and from the environment.
func TestWrongValues(t *testing.T) {
	for _, args := range []string{
		"serve --listen 127.0.0.1:0 --max-active 0", "serve --listen 127.0.0.1:0 --api-key \x01",
		"serve --listen 127.0.0.1:0 --max-connections -1", "serve --listen 127.0.0.1:0 --chat-format none", "serve --listen 127.0.0.1:0 --tls-key x",
		"serve --world-size 9 --distributed", "serve --listen 127.0.0.1:0 --model nothing.gguf", "serve --listen=", "serve extra",
		"bench --model nothing.gguf", "bench --reduce mean", "tokenize --model nothing.gguf", "bench --backend none", "bench --simd none",
		"bench --ctx -1", "bench --max-batch -1", "rails plan one.json", "--no-such-flag",
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
