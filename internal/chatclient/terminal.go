package chatclient

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"ringmaster/internal/safetext"
)

// Terminal reads lines with editing and history from a terminal. The terminal is raw only
// while a line is read, so that ^C reaches the program during an answer.
type Terminal struct {
	in, out *os.File
	term    *term.Terminal
}

// NewTerminal returns a reader on a terminal; the lines go into history.
func NewTerminal(in, out *os.File, history *History) *Terminal {
	t := &Terminal{in: in, out: out}
	t.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, "")
	t.term.History = history
	return t
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Size returns a terminal's columns and rows, 80 by 24 if unknown.
func Size(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// ReadLine implements LineReader. Pasted text with line breaks is one line that contains
// them. ^C, and ^D on an empty line, are io.EOF. After the end of ctx the terminal must
// not be used again.
func (t *Terminal) ReadLine(ctx context.Context, prompt string) (line string, err error) {
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, term.Restore(int(t.in.Fd()), state)) }()
	if err := t.term.SetSize(Size(t.out)); err != nil {
		return "", err
	}
	t.term.SetPrompt(prompt)
	t.term.SetBracketedPasteMode(true)
	defer t.term.SetBracketedPasteMode(false)
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := t.read()
		done <- result{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done(): // a read of a terminal cannot be cancelled
		return "", context.Cause(ctx)
	}
}

func (t *Terminal) read() (string, error) {
	var pasted []string
	for {
		line, err := t.term.ReadLine()
		switch {
		case errors.Is(err, term.ErrPasteIndicator):
			pasted = append(pasted, line)
			t.term.SetPrompt(". ")
		case err != nil:
			return "", err
		default:
			return safetext.Drop(strings.Join(append(pasted, line), "\n")), nil
		}
	}
}
