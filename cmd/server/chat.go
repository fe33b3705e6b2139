package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	chat "ringmaster/internal/chatclient"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

// defaultURL is where a server listens by default.
const defaultURL = "http://127.0.0.1:8080"

// maxQuestion is the longest question that is read from a pipe, in bytes.
const maxQuestion = 64 << 20

// chatStreams are the standard streams of a conversation.
type chatStreams struct{ in, out *os.File }

// chatOptions are the flags of chat.
type chatOptions struct {
	url, key, model, system, load, save string
	set                                 []string
	noHistory, plain, noReasoning       bool
}

// newChat builds the command that talks with a server.
func newChat(std chatStreams) *cobra.Command {
	o := chatOptions{}
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
			return stopped(cmd.Context(), o.run(cmd.Context(), std, strings.Join(args, "")))
		},
	}
	f := cmd.Flags()
	flags.Parsed(f, &o.url, "url", defaultURL, urlForm, checkURL, "`address` of the server")
	flags.Text(f, &o.key, "api-key", "", "`key` of the server")
	settings.MarkSecret(f, "api-key")
	flags.Text(f, &o.model, "model-name", "", "`name` of the model; default is the server's first")
	flags.Text(f, &o.system, "system", "", "the system message")
	flags.ParsedList(f, &o.set, "set", false, fieldForm, checkField, "field of the requests, like `temperature=0.7`; may be repeated")
	flags.File(f, &o.load, "load", "go on with the conversation of a `file` that --save or /save has written")
	flags.Out(f, &o.save, "save", "", "write the conversation to a new `file` at the end")
	flags.Bool(f, &o.noHistory, "no-history", false, "keep no file of the lines that were typed")
	flags.Bool(f, &o.plain, "plain", false, "plain text on a terminal too, as with NO_COLOR")
	flags.Bool(f, &o.noReasoning, "no-reasoning", false, "do not show reasoning; on a pipe it never is")
	return cmd
}

// run holds the conversation, or asks the one question.
func (o *chatOptions) run(ctx context.Context, std chatStreams, question string) error {
	client, err := chat.NewClient(o.url, o.key)
	if err != nil {
		return err
	}
	var before []chat.Message
	if o.load != "" { // before the server is asked
		if before, err = chat.ReadConversation(o.load); err != nil {
			return usage.Errorf("--load: %w", err)
		}
	}
	if err := flags.CheckOut("save", o.save); err != nil {
		return err
	}
	fields := map[string]any{}
	for _, f := range o.set {
		name, value, _ := strings.Cut(f, "=")
		fields[name] = chat.FieldValue(value)
	}
	piped := !chat.IsTerminal(std.in)
	once := question != "" || piped
	if piped {
		if question, err = readQuestion(std.in, question); err != nil {
			return err
		}
	}
	_, colourless := os.LookupEnv("NO_COLOR")
	options := chat.Options{Model: o.model, System: o.system, Fields: fields, Now: time.Now,
		Styled:      !o.plain && !colourless && chat.IsTerminal(std.out),
		NoReasoning: o.noReasoning || !chat.IsTerminal(std.out),
		Size:        func() (int, int) { return chat.Size(std.out) }}
	interrupts := make(chan os.Signal, 1)
	options.Interrupts = interrupts
	s, err := chat.New(ctx, client, std.out, options)
	if err != nil {
		return err
	}
	if o.load != "" {
		s.Resume(before)
	}
	if once {
		err = s.Once(ctx, question)
	} else {
		// ^C ends the answer; stopOnSignal would end the program.
		signal.Reset(os.Interrupt)
		signal.Notify(interrupts, os.Interrupt)
		err = o.converse(ctx, s, std)
	}
	if o.save != "" {
		if serr := s.Save(o.save); err == nil {
			err = serr
		}
	}
	return err
}

// readQuestion is the question of the command line followed by that of a pipe.
func readQuestion(in io.Reader, before string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxQuestion+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxQuestion {
		return "", usage.Errorf("the question is longer than %d bytes", maxQuestion)
	}
	question := strings.TrimSpace(strings.ToValidUTF8(before+"\n\n"+string(data), "\uFFFD"))
	if question == "" {
		return "", usage.Errorf("there is no question: give one as an argument or on the pipe, or start chat in a terminal")
	}
	return question, nil
}

// converse runs the session on a terminal, with the history of earlier ones.
func (o *chatOptions) converse(ctx context.Context, s *chat.Session, std chatStreams) error {
	path := ""
	if !o.noHistory {
		path = chat.HistoryPath(os.LookupEnv)
	}
	history, err := chat.OpenHistory(path)
	if err != nil {
		return fmt.Errorf("the history of earlier conversations: %w; --no-history goes without", err)
	}
	err = s.Run(ctx, chat.NewTerminal(std.in, std.out, history))
	fmt.Fprintln(std.out) // the cursor is behind the prompt
	if herr := history.Save(); err == nil && herr != nil {
		return fmt.Errorf("the history: %w; --no-history goes without", herr)
	}
	return err
}
