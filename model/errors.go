package model

import (
	"errors"
	"fmt"
)

// ErrNoMemory: a step was refused because the state of its sequences would not
// fit in memory. Nothing of it shows; after other sequences are dropped the
// same step may succeed. Test for it with errors.Is.
var ErrNoMemory = errors.New("model: not enough memory for the sequences")

// MemoryError is an ErrNoMemory that names the sequence that could not grow.
// A Forward that knows it should return this; a plain ErrNoMemory leaves the
// choice of the victim to the engine.
type MemoryError struct {
	Seq  SeqID
	Need int64 // bytes asked for, 0 if not known
	Have int64 // bytes that were free, 0 if not known
}

// Error names the sequence and, where known, the bytes.
func (e *MemoryError) Error() string {
	if e.Need == 0 {
		return fmt.Sprintf("model: not enough memory for sequence %d", e.Seq)
	}
	return fmt.Sprintf("model: not enough memory for sequence %d: %d bytes needed, %d free", e.Seq, e.Need, e.Have)
}

// Unwrap makes errors.Is(err, ErrNoMemory) hold.
func (e *MemoryError) Unwrap() error { return ErrNoMemory }
