package model

// Sized is implemented by a Model that holds its KV caches to a budget. Any goroutine may
// call its methods.
type Sized interface {
	// SequenceBytes is the memory of a sequence since a step named it up to
	// the given length in positions: it never shrinks before the sequence is
	// dropped. It does not fall as length grows. It is 0 for a length of 0.
	SequenceBytes(length int) int64
	// CheckpointBytes is the most bytes of memory of one checkpoint. Each sequence that has
	// the checkpoint is charged for it in addition to its SequenceBytes. 0 for a model that
	// needs none.
	CheckpointBytes() int64
	// SequenceBudget is the most bytes that all sequences may hold together,
	// 0 for no limit. It changes between epochs only. A step that needs more
	// is refused with a MemoryError. A sequence that the step drops and a
	// checkpoint that it frees count until the step is committed.
	SequenceBudget() int64
}
