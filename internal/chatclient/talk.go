package chatclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// Talking configures Talk.
type Talking struct {
	URL, Key, Model, System       string
	Load, Save                    string  // files of conversations; empty: none
	Set                           []Field // of the requests
	NoHistory, Plain, NoReasoning bool
}

// maxQuestion is the longest question that is read from a pipe, in bytes.
const maxQuestion = 64 << 20

// Field is a field of a request by its name.
type Field struct {
	Name  string
	Value any
	text  string
}

// FieldForm is how a Field is written.
const FieldForm = "a field and its value, such as temperature=0.7"

// ParseField reads a Field.
func ParseField(text string) (Field, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return Field{}, fmt.Errorf("expected %s", FieldForm)
	}
	return Field{name, FieldValue(value), text}, nil
}

// String is how the field is written.
func (f Field) String() string { return f.text }

// Talk holds a conversation on the streams of a terminal. With a question or on a pipe it
// asks once.
func Talk(ctx context.Context, o Talking, in, out *os.File, question string) error {
	client, err := NewClient(o.URL, o.Key)
	if err != nil {
		return err
	}
	var before []Message
	if o.Load != "" { // before any request to the server
		if before, err = ReadConversation(o.Load); err != nil {
			return usage.Errorf("--load: %w", err)
		}
	}
	if err := flags.CheckOut("save", o.Save); err != nil {
		return err
	}
	fields := map[string]any{}
	for _, f := range o.Set {
		fields[f.Name] = f.Value
	}
	piped := !IsTerminal(in)
	once := question != "" || piped
	if piped {
		if question, err = readQuestion(in, question); err != nil {
			return err
		}
	}
	_, colourless := os.LookupEnv("NO_COLOR")
	options := Options{Model: o.Model, System: o.System, Fields: fields, Now: time.Now,
		Styled:      !o.Plain && !colourless && IsTerminal(out),
		NoReasoning: o.NoReasoning || !IsTerminal(out),
		Size:        func() (int, int) { return Size(out) }}
	interrupts := make(chan os.Signal, 1)
	options.Interrupts = interrupts
	s, err := New(ctx, client, out, options)
	if err != nil {
		return err
	}
	if o.Load != "" {
		s.messages = before
	}
	if once {
		err = s.Once(ctx, question)
	} else {
		// ^C ends the answer; with stopOnSignal it would end the program.
		signal.Reset(os.Interrupt)
		signal.Notify(interrupts, os.Interrupt)
		err = o.converse(ctx, s, in, out)
	}
	if o.Save != "" {
		err = errors.Join(err, s.Save(o.Save))
	}
	return err
}

// converse runs the session on a terminal, with the history of earlier ones.
func (o *Talking) converse(ctx context.Context, s *Session, in, out *os.File) error {
	path := ""
	if !o.NoHistory {
		path = HistoryPath(os.LookupEnv)
	}
	history, err := OpenHistory(path)
	if err != nil {
		return fmt.Errorf("the history of earlier conversations: %w; --no-history disables it", err)
	}
	err = s.Run(ctx, NewTerminal(in, out, history))
	fmt.Fprintln(out) // the cursor is behind the prompt
	if herr := history.Save(); err == nil && herr != nil {
		return fmt.Errorf("the history: %w; --no-history disables it", herr)
	}
	return err
}

// readQuestion returns the question of the command line, followed by the text on a pipe.
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
