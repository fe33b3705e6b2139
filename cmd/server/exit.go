package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ringmaster/internal/pull"
	"ringmaster/internal/usage"
	"ringmaster/model"
	"ringmaster/model/tokenizer"
)

// verdict is the end of a command that did its work and found something wrong: its
// exit code, and a line that sums it up.
type verdict struct {
	code int
	text string
}

// Error is the line.
func (v *verdict) Error() string { return v.text }

// maxErrorText bounds what is printed of an error, in bytes. What errors quote is bounded
// where it is read; this bounds what was overlooked.
const maxErrorText = 32 << 10

// printError prints the error that a command ends with.
func printError(w io.Writer, err error) {
	text := err.Error()
	if over := len(text) - maxErrorText; over > 0 {
		text = fmt.Sprintf("%s… (%d more bytes)", strings.ToValidUTF8(text[:maxErrorText], ""), over)
	}
	fmt.Fprintln(w, "ringmaster:", text)
}

// exitCode returns 2 if the command cannot work as called (for example because of the
// model's file), otherwise that of its verdict, or 1.
func exitCode(err error) int {
	if v, ok := errors.AsType[*verdict](err); ok {
		return v.code
	}
	var f *model.FileError
	if errors.Is(err, pull.ErrInput) || usage.Is(err) || errors.As(err, &f) || errors.Is(err, tokenizer.ErrVocabulary) {
		return 2
	}
	return 1
}

// flagsOnly prepares a command without a group or model: it reads the flags from the
// environment and the file, and validates nothing else.
func flagsOnly(cmd *cobra.Command, _ []string) error {
	_, err := tree().Prepare(cmd)
	return err
}

// stopped replaces the cause of the end of ctx, which speaks of ranks, in the errors of
// commands without any.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped by a signal")
	}
	return err
}
