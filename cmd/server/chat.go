package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	chat "ringmaster/internal/chatclient"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// defaultURL is where a server listens by default.
const defaultURL = "http://127.0.0.1:8080"

// newChat builds the command that talks with a server.
func newChat(in, out *os.File) *cobra.Command {
	o := chat.Talking{}
	cmd := &cobra.Command{
		Use:   "chat [QUESTION]",
		Short: "Talk with a server in the terminal",
		Long: `Talks with a server of the OpenAI API: one that this program serves, or any other.
Reasoning is dimmed, Markdown is set, /help lists the commands.

With QUESTION, or on a pipe, it asks once, writes the answer as plain text and
ends. With both, what comes from the pipe follows the question.`,
		Example: `  ringmaster chat
  ringmaster chat --url http://10.0.0.1:8080 --set temperature=0
  git diff | ringmaster chat "Review this change:"`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			return stopped(cmd.Context(), chat.Talk(cmd.Context(), o, in, out, strings.Join(args, "")))
		},
	}
	f := cmd.Flags()
	flags.URL(f, &o.URL, "url", defaultURL, "`address` of the server")
	flags.Text(f, &o.Key, "api-key", "", "`key` of the server")
	settings.MarkSecret(f, "api-key")
	flags.Text(f, &o.Model, "model-name", "", "`name` of the model; default is the server's first")
	flags.Text(f, &o.System, "system", "", "the system message")
	flags.TypedList(f, &o.Set, "set", false, chat.FieldForm, chat.ParseField, "field of the requests, like `temperature=0.7`; may be repeated")
	flags.File(f, &o.Load, "load", "continue the conversation of a `file` that --save or /save has written")
	flags.Out(f, &o.Save, "save", "", "write the conversation to a new `file` at the end")
	flags.Bool(f, &o.NoHistory, "no-history", false, "keep no file of the lines that were typed")
	flags.Bool(f, &o.Plain, "plain", false, "plain text on a terminal too, as with NO_COLOR")
	flags.Bool(f, &o.NoReasoning, "no-reasoning", false, "do not show reasoning; on a pipe it never is")
	return cmd
}
