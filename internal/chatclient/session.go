package chatclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

// LineReader returns what the user types. At the end of input it returns io.EOF, at the
// end of ctx its cause.
type LineReader interface {
	ReadLine(ctx context.Context, prompt string) (string, error)
}

// Options say how a Session looks and asks.
type Options struct {
	Model       string         // "": the server's first
	System      string         // "": no system message
	Fields      map[string]any // further fields of each request, such as temperature
	Styled      bool           // format Markdown and dim the reasoning; otherwise plain text
	NoReasoning bool           // do not show reasoning
	// Size returns the terminal's columns and rows; it is called before each answer.
	Size func() (width, height int)
	// Interrupts end the running answer, not the session; nil: nothing does.
	Interrupts <-chan os.Signal
	Now        func() time.Time
}

// Session is one conversation.
type Session struct {
	client   *Client
	out      io.Writer
	o        Options
	messages []Message
	models   []string
}

// errInterrupted is the cause of an answer's end when the user stopped it.
var errInterrupted = errors.New("stopped")

// New begins a conversation: it asks the server for its models and checks that it has
// o.Model. An unknown name is an error of package usage.
func New(ctx context.Context, c *Client, out io.Writer, o Options) (*Session, error) {
	models, err := c.Models(ctx)
	if err != nil {
		return nil, err
	}
	if o.Fields == nil {
		o.Fields = map[string]any{}
	}
	s := &Session{client: c, out: safetext.NewWriter(out), o: o, models: models}
	if o.Styled {
		s.out = safetext.NewStyled(out)
	}
	if o.Model == "" {
		s.o.Model = models[0]
	}
	s.clear()
	return s, nil
}

// clear forgets all but the system message.
func (s *Session) clear() {
	s.messages = nil
	if s.o.System != "" {
		s.messages = []Message{{"system", s.o.System}}
	}
}

// Load replaces the conversation with that of a file.
func (s *Session) Load(path string) error {
	messages, err := ReadConversation(path)
	if err == nil {
		s.messages = messages
	}
	return err
}

// Save writes the conversation to a new file.
func (s *Session) Save(path string) error { return writeConversation(path, s.messages) }

// Once asks one question and shows the answer.
func (s *Session) Once(ctx context.Context, question string) error {
	s.messages = append(s.messages, Message{"user", question})
	_, err := s.answer(ctx)
	return err
}

// Run reads questions and commands until the input ends or the user leaves. It shows a
// failed answer and continues; its errors are those of the input and output, and the
// cause of ctx.
func (s *Session) Run(ctx context.Context, in LineReader) error {
	s.say("%s at %s. /help lists the commands, ^D ends.", s.o.Model, s.client.Address())
	for {
		line, err := readMessage(ctx, in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line == "" {
			continue
		}
		if line[0] == '/' {
			more, err := s.command(ctx, line)
			if err != nil || !more {
				return err
			}
			continue
		}
		s.messages = append(s.messages, Message{"user", line})
		if err := s.ask(ctx); err != nil {
			return err
		}
	}
}

// ask answers the last message and shows a failure.
func (s *Session) ask(ctx context.Context) error {
	shown, err := s.answer(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var failed *outputError
	switch {
	case errors.As(err, &failed):
		return err
	case errors.Is(err, errInterrupted):
		s.say("stopped; /retry asks again")
	case err != nil && shown:
		s.say("error: %v; the text so far is kept; /retry asks again", err)
	case err != nil:
		s.say("error: %v; /retry asks again", err)
	}
	return nil
}

// outputError is an error of writing to the terminal.
type outputError struct{ error }

// answer asks for an answer, shows it as it streams, and appends it to the conversation.
// If the answer fails, the text received so far is appended.
func (s *Session) answer(ctx context.Context) (shown bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-s.o.Interrupts: // pressed when there was nothing to stop
	default:
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.o.Interrupts:
			cancel(errInterrupted)
		case <-stop:
		}
	}()
	width, height := s.o.Size()
	view := &screen{w: s.out, width: width, height: height, styled: s.o.Styled}
	text, took, use := "", timing{begun: s.o.Now()}, (*Usage)(nil)
	err = s.client.Stream(ctx, Request{s.o.Model, s.messages, s.o.Fields}, func(e Event) error {
		if e.Usage != nil {
			use = e.Usage
		}
		if e.Timings != nil {
			took.server = e.Timings
		}
		if e.Text == "" && e.Reasoning == "" {
			return view.err
		}
		took.piece(s.o.Now())
		if e.Reasoning != "" && !s.o.NoReasoning {
			view.Reason(e.Reasoning)
		}
		view.Text(e.Text)
		text += e.Text
		return view.err
	})
	shown = took.pieces > 0
	if shown {
		if werr := view.End(); werr != nil {
			return shown, &outputError{werr}
		}
	}
	if text != "" {
		s.messages = append(s.messages, Message{"assistant", text})
	}
	if err == nil && s.o.Styled && use != nil {
		s.say("%s", took.line(use))
	}
	return shown, err
}

// timing holds the times of the pieces of an answer.
type timing struct {
	begun, first, last time.Time
	pieces             int
	server             *Timings // nil: not sent
}

func (t *timing) piece(now time.Time) {
	if t.pieces == 0 {
		t.first = now
	}
	t.last = now
	t.pieces++
}

// line returns the line below an answer: tokens, their rate, the wait for the first.
func (t *timing) line(u *Usage) string {
	text := units.Count(u.Completion, "token")
	if rate := t.rate(u.Completion); rate > 0 {
		text += fmt.Sprintf(", %.1f tokens/s", rate)
	}
	if t.pieces > 0 {
		text += fmt.Sprintf(", first token after %.2f s", t.first.Sub(t.begun).Seconds())
	}
	text += fmt.Sprintf("; prompt of %d", u.Prompt)
	if u.Details.Cached > 0 {
		text += fmt.Sprintf(", %d cached", u.Details.Cached)
	}
	return text
}

// minRated is the shortest time from which a rate is computed: an answer that comes all at
// once has none.
const minRated = 100 * time.Millisecond

// rate returns the tokens of a second after the first token, by the server's clock if it
// sends times; 0 if it cannot be known.
func (t *timing) rate(tokens int) float64 {
	d := t.last.Sub(t.first)
	switch s := t.server; {
	case s != nil && s.Predicted > 1 && s.Decode > 0:
		return 1000 * float64(s.Predicted-1) / s.Decode
	case s != nil || tokens < 2 || d < minRated:
		return 0
	}
	return float64(tokens-1) / d.Seconds()
}

// maxSaid is the longest line that say shows, in bytes.
const maxSaid = 8 << 10

// say shows a line of the program, as opposed to the model.
func (s *Session) say(format string, args ...any) {
	text := safetext.Line(fmt.Sprintf(format, args...), maxSaid)
	if s.o.Styled {
		text = paint(text, dim)
	}
	fmt.Fprintln(s.out, text) // a broken terminal shows when the next line is read
}
