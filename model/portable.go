package model

// Portable is implemented by a Model that can copy sequences out and back in, between
// steps and in pieces. Its methods and those of what they return are for the goroutine
// that runs steps.
type Portable interface {
	// Export begins a snapshot of the first tokens of a sequence, or all, given their ids.
	// A snapshot from > 0 continues one that ends there. Until it has ended or was stopped,
	// no step may name the sequence except as the source of forks.
	Export(id SeqID, tokens []int32, from int) Export
	// Import begins a new sequence, which exists once Close has returned. No step may
	// name it before. If the import fails or is stopped, it may hold memory until it is
	// dropped. The sequence has the checkpoints of its snapshots, and the greatest of their
	// greatest lengths; but if one ends at a checkpoint more than Info.Rewind behind that,
	// it is from there on as a fork at the checkpoint.
	Import(id SeqID) Import
}

// Export is a snapshot that leaves a model.
type Export interface {
	// Next returns the next piece, of about a megabyte and valid until the next call;
	// io.EOF after the last. An error that wraps ErrRecovering is temporary.
	Next() ([]byte, error)
	// Stop ends the export. It may be called at any time.
	Stop()
}

// Import is a sequence that enters a model: a snapshot from 0 on, and others, each of which
// continues the one before it. After an error only Stop may follow.
// Errors say what is wrong with the snapshot, or wrap ErrNoMemory, ErrUnavailable or
// ErrRecovering.
type Import interface {
	// Write takes the next piece of the snapshots, one after the other, as Export gave it or
	// cut at other places, of at most MaxPiece bytes.
	Write(piece []byte) (int, error)
	// Close ends the last snapshot and returns the committed tokens of the sequence.
	Close() (tokens []int32, err error)
	// Stop ends the import, complete or not. It may be called at any time.
	Stop()
}

// MaxPiece is the most bytes of a piece of an Import.
const MaxPiece = 2 << 20
