package model

import (
	"errors"
	"time"
)

// ErrUnavailable: the model cannot run a step now. A Forward that fails with it has
// lost its step and all sequences; the model may become available again. Test for
// it with errors.Is.
var ErrUnavailable = errors.New("the model is not available now")

// UnavailableError is an ErrUnavailable that says why. Its text is the cause's,
// which names the rank: "rank 1 at 10.0.0.2:41234: connection closed".
type UnavailableError struct{ Cause error }

// Error is the text of the cause.
func (e *UnavailableError) Error() string { return e.Cause.Error() }

// Unwrap makes errors.Is hold for ErrUnavailable and for the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// ErrRecovering: the model cannot run a step at this moment, but will soon, and keeps its
// sequences. A Forward waits meanwhile. Test for it with errors.Is.
var ErrRecovering = errors.New("recovering")

// RecoveringError is an ErrRecovering that says why, as UnavailableError does.
type RecoveringError struct {
	Cause error
	// Reading is how long reading the weights that are new to a host may take; 0 if no
	// weights are new or the time is not known.
	Reading time.Duration
}

// Error is the text of the cause.
func (e *RecoveringError) Error() string { return "recovering: " + e.Cause.Error() }

// Unwrap makes errors.Is hold for ErrRecovering and for the cause.
func (e *RecoveringError) Unwrap() []error { return []error{ErrRecovering, e.Cause} }

// Epochs is implemented by a Model that can lose all sequences at once, because it runs
// on several hosts. Any goroutine may call its method.
type Epochs interface {
	// Epoch returns a number that changes whenever all sequences are lost. If no step can
	// run now, it also returns an error that wraps ErrUnavailable, or ErrRecovering if a
	// step would run after a while. It does not wait. A step that continues a lost
	// sequence fails with ErrUnavailable, and Commit of a lost step does nothing.
	Epoch() (n uint64, err error)
}
