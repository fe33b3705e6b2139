package model

import (
	"errors"
	"fmt"
)

// ErrNoMemory: a step was refused because the KV caches of its sequences do not
// fit in memory. The step had no effect, and may succeed after other sequences
// are dropped. Test for it with errors.Is.
var ErrNoMemory = errors.New("not enough memory for the sequences")

// ErrStorage: a step could not read what it needs of the model's file, such as a row of a
// table. It changed nothing that was committed. The engine ends the requests of the step;
// later steps may succeed. Test for it with errors.Is.
var ErrStorage = errors.New("the model's file cannot be read")

// MemoryError is an ErrNoMemory that names the sequence that could not grow. The engine
// then ends the request of that sequence. With a plain ErrNoMemory the engine chooses
// one.
type MemoryError struct {
	Seq  SeqID
	Need int64 // bytes needed, 0 if not known
	Have int64 // bytes free, 0 if not known
}

// Error names the sequence and, where known, the bytes.
func (e *MemoryError) Error() string {
	if e.Need == 0 {
		return fmt.Sprintf("not enough memory for sequence %d", e.Seq)
	}
	return fmt.Sprintf("not enough memory for sequence %d: %d bytes needed, %d free", e.Seq, e.Need, e.Have)
}

// Unwrap makes errors.Is(err, ErrNoMemory) hold.
func (e *MemoryError) Unwrap() error { return ErrNoMemory }

// FileError: this program does not run the model's file, or the file lacks or contradicts
// what a model needs. A restart does not help. The text is that of Err, which names the
// file.
type FileError struct{ Err error }

// Error is the text of Err.
func (e *FileError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }
