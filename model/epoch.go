package model

import "errors"

// ErrUnavailable: the model runs no step now. A Forward that fails with it has
// lost its step and all sequences, but the model may come back. Test for it with
// errors.Is.
var ErrUnavailable = errors.New("model: not available now")

// UnavailableError is an ErrUnavailable that says why. Its text is the cause's,
// which names the rank: "rank 1 at 10.0.0.2:41234: connection closed".
type UnavailableError struct{ Cause error }

// Error is the text of the cause.
func (e *UnavailableError) Error() string { return e.Cause.Error() }

// Unwrap makes errors.Is hold for ErrUnavailable and for the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// Epochs is a Model whose sequences may all be lost at once, because it runs on
// several machines. The methods that it has beside those of Model may be called
// by any goroutine.
type Epochs interface {
	// Epoch gives a number that changes whenever all sequences were
	// forgotten, and why no step can run now; that error wraps
	// ErrUnavailable. It does not wait. A step that continues a sequence
	// lost meanwhile fails with ErrUnavailable, and a Commit of one that
	// was lost does nothing.
	Epoch() (n uint64, err error)
}
