// Package usage distinguishes errors of how a command was called from all others, because
// main ends with exit code 2 after them, and with 1 after any other.
package usage

import (
	"errors"
	"fmt"
)

// Error is wrapped by the errors that the way of calling a command causes: trying again
// does not help.
type Error struct{ err error }

// Error returns the text of the cause.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Errorf is fmt.Errorf with an Error as the result.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

// Wrap makes err an Error; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Is reports whether err is or wraps an Error.
func Is(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
