package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
)

// TestForeignFlags: a flag of another server is an error that names ours, if the command has
// it; a model that is given as an argument is one that names --model.
func TestForeignFlags(t *testing.T) {
	run := func(args ...string) error {
		root := &cobra.Command{Use: "demo", SilenceErrors: true, SilenceUsage: true}
		var text string
		serve := &cobra.Command{Use: "serve", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		flags.Text(serve.Flags(), &text, "listen,l", "", "address")
		flags.Text(serve.Flags(), &text, "model,m", "", "file")
		flags.Text(serve.Flags(), &text, "backend", "", "backend")
		chat := &cobra.Command{Use: "chat", RunE: func(*cobra.Command, []string) error { return nil }}
		flags.Text(chat.Flags(), &text, "url", "", "address")
		pass := &cobra.Command{Use: "pass", Annotations: map[string]string{cli.PassedFlags: "they go after --"}, RunE: func(*cobra.Command, []string) error { return nil }}
		root.AddCommand(serve, chat, pass)
		cli.AllUsage(root)
		root.SetArgs(args)
		return root.ExecuteContext(t.Context())
	}
	for args, want := range map[string]string{
		"serve --port 80":         "unknown flag: --port; use --listen ADDRESS:PORT",
		"serve --host=0.0.0.0":    "use --listen ADDRESS:PORT",
		"serve -ngl 99":           "use --backend metal",
		"serve -ngl=99":           "use --backend metal",
		"serve --n-gpu-layers 99": "use --backend metal",
		"serve -fa":               "leave it out",
		"serve --prot 80":         "unknown flag: --prot; see",
		"serve --bckend cpu":      "did you mean --backend?",
		"serve m.gguf":            "name the model with --model m.gguf",
		"serve hf:a/b:Q4":         "name the model with --model hf:a/b:Q4",
		"chat --port 80":          "use --url http://HOST:PORT",
		"chat -m x":               "the server has the model",
		"pass --else":             "they go after --",
	} {
		require.ErrorContains(t, run(strings.Fields(args)...), want, args)
	}
	require.NotContains(t, run("chat", "-ngl", "9").Error(), "backend", "the command has no such flag")
}
