//go:build !cgo

// Package cpu is the kernels.Backend that computes on the processor. This build
// has no cgo and so no kernels: New fails.
package cpu

import (
	"errors"

	"ringmaster/kernels"
)

// Backend stands in for the backend of a build with cgo.
type Backend struct{ kernels.Backend }

// Level stands in for an instruction set.
type Level int

// String is "none".
func (l Level) String() string { return "none" }

// SameBits is l.
func (l Level) SameBits() Level { return l }

// Levels is empty.
func Levels() []Level { return nil }

// ParseLevel accepts only "auto", which has no effect here.
func ParseLevel(name string) (Level, error) {
	if name == "auto" {
		return 0, nil
	}
	return 0, errNoCgo
}

// MathBits is empty: no op calls a C library.
func MathBits() string { return "" }

// Best is 0: there are no levels.
func Best() Level { return 0 }

// Open fails: the kernels are C.
func Open(Options) (*Backend, error) { return nil, errNoCgo }

// NewLevel fails: the kernels are C.
func NewLevel(int, Level) (*Backend, error) { return nil, errNoCgo }

// New fails: the kernels are C.
func New(int) (*Backend, error) { return nil, errNoCgo }

var errNoCgo = errors.New("this program was built without cgo and has no kernels; build it with CGO_ENABLED=1 and a C compiler")

// SetActivations does nothing: there are no kernels.
func (b *Backend) SetActivations(Activations) {}

// Threads is the number of threads that compute: none.
func (b *Backend) Threads() int { return 0 }

// WorkingBytes is 0.
func (b *Backend) WorkingBytes() int64 { return 0 }

// Stream stands in for the memory bandwidth benchmark of a build with cgo.
type Stream struct{}

// NewStream fails: the kernels are C.
func (b *Backend) NewStream(int64) (*Stream, error) { return nil, errNoCgo }

// Read measures nothing.
func (s *Stream) Read() float64 { return 0 }

// Close does nothing.
func (s *Stream) Close() {}
