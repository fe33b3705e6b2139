package decoder

import (
	"context"
	"fmt"
	"io"
	"time"

	"ringmaster/distributed"
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// DefaultMaxTokens is the most tokens of a step unless OpenOptions says otherwise.
const DefaultMaxTokens = 512

// OpenOptions are the choices with which an architecture opens a model.
type OpenOptions struct {
	// Context limits the positions of a sequence; 0 is the file's limit.
	Context int
	// MaxTokens is the most tokens of a step; 0 is DefaultMaxTokens.
	MaxTokens int
	// SequenceBudget is the most bytes that the KV caches of all sequences hold
	// together; 0 for no limit. See model.Sized and SetSequenceBudget.
	SequenceBudget int64
	// Reduce is how the outputs of routed experts are added.
	Reduce parallel.Reduce
	// Wire is the type of the numbers that ranks exchange.
	Wire parallel.Wire
	// DraftFile is a file with a block for multi-token prediction, perhaps the model's own,
	// with which the model is a model.Drafter; nil: it guesses nothing. Until Close it must
	// stay open.
	DraftFile *gguf.File
	// Span is the layers that a plan is for, of a rank in a stage; empty: all. Join makes an
	// open model that of a stage.
	Span parallel.Range
	// Now is the clock of LayerStats; nil is the system's.
	Now func() time.Time
}

// Complete replaces zeros by what they stand for in a file that allows sequences of so
// many positions.
func (o OpenOptions) Complete(limit int) OpenOptions {
	if o.MaxTokens == 0 {
		o.MaxTokens = DefaultMaxTokens
	}
	if o.Context == 0 {
		o.Context = limit
	}
	return o
}

// Layers are the layers of Span, in a model of so many.
func (o OpenOptions) Layers(n int) parallel.Range {
	if o.Span == (parallel.Range{}) {
		return parallel.Range{End: n}
	}
	return o.Span
}

// Resolve completes the options for a file and checks them.
func (o OpenOptions) Resolve(f *gguf.File, limit int) (OpenOptions, error) {
	o = o.Complete(limit)
	if o.MaxTokens < 1 {
		return o, fmt.Errorf("%s: MaxTokens is %d; expected 1 or more", f.Architecture(), o.MaxTokens)
	}
	if o.Context < 0 || o.Context > limit {
		return o, fmt.Errorf("%s: context of %d tokens; the file allows 1 to %d", f.Path(), o.Context, limit)
	}
	return o, nil
}

// Map shows the mapped parts of a file to a backend.
func Map(f *gguf.File, b kernels.Backend) error {
	for _, mapping := range f.Mappings() {
		if err := b.Map(mapping); err != nil {
			return fmt.Errorf("%s: %s backend: %w", f.Path(), b.Name(), err)
		}
	}
	return nil
}

// Decoder is a Model of any type of KV cache; the methods are documented there.
type Decoder interface {
	model.Model
	model.Sized
	model.Drafter
	SetSequenceBudget(bytes int64)
	Join(g *distributed.Group, p parallel.Placement) error
	JoinStage(g, inside *distributed.Group, p parallel.Placement) error
	HoldWeights() error
	Help(step model.Step) []int
	Settle() error
	Forget()
	Prepare(step model.Step) error
	Run(ctx context.Context) ([][]float32, error)
	Digest() []uint32
	LayerStats() []parallel.LayerStats
	Chosen() [][]uint64
	Rule() (rule assign.Rule, rank int, grouped bool)
	Exchanges() [][]parallel.Exchange
	Sizes() parallel.Sizes
	Snapshot(w io.Writer, id model.SeqID, tokens []int32) error
	Restore(r io.Reader, id model.SeqID) ([]int32, error)
	Extent() model.Extent
	Examine(p model.Piece) ([]model.Sum, error)
	Drop(id model.SeqID)
	Checkpoints(id model.SeqID) []int
	KeepCheckpoints(id model.SeqID, at []int)
	StateBytes(id model.SeqID, from, length int) int64
	SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error
	RestoreFrom(r io.Reader, id model.SeqID, before []int32) ([]int32, error)
}
