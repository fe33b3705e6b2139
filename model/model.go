// Package model says what a model is to the engine: something that runs steps.
// A step is a value. It names sequences, tokens and positions and nothing of
// requests, so it can be broadcast, repeated and recorded.
package model

import "context"

// SeqID names a sequence for its whole life. The leader chooses it.
type SeqID uint32

// Want says for which tokens of an entry logits are computed.
type Want uint8

// The choices of Want.
const (
	WantNone Want = iota // none: a chunk of a prompt that goes on
	WantLast             // the last token only
	WantAll              // every token
)

// Entry is a run of tokens of one sequence.
type Entry struct {
	Seq SeqID
	// Pos is the position of Tokens[0]. A sequence not known yet starts at
	// 0. Pos equal to the committed length extends the sequence; a smaller
	// Pos first takes back the tokens from Pos on. A model allows that down
	// to 0, and else only as far as Info.Rewind behind the greatest length
	// that was committed since the sequence was last at 0.
	Pos    int
	Tokens []int32
	Want   Want
}

// Step is one turn of the model: prefill chunks and single tokens mixed, each
// sequence at most once. Sequences in Drop are forgotten by Commit; none of
// them has an entry. A step may have no entries: it only drops, and has no rows.
// A sequence that a Forward named may hold memory from then on, committed or not,
// until it is dropped; dropping one that is not known does nothing.
type Step struct {
	Drop    []SeqID
	Entries []Entry
}

// Info is what the engine must know of a model.
type Info struct {
	Name          string
	Architecture  string
	Vocab         int // length of a logits row
	ContextLength int // most positions of a sequence
	MaxTokens     int // most tokens of a step
	Rewind        int // how far Entry.Pos may lie behind the greatest committed length
}

// Model runs steps. It is used by one goroutine.
type Model interface {
	Info() Info
	// Forward runs the step and returns its logits, one row of Info.Vocab
	// for each wanted token in the order of the entries. The rows are valid
	// until the next Forward. Nothing of the step shows until Commit: after
	// an error, or without Commit, the same or another step may follow.
	// ctx ends a long step between layers.
	Forward(ctx context.Context, s Step) ([][]float32, error)
	// Commit makes the last step that Forward ran part of its sequences.
	Commit(s Step)
	// Len is the committed length of a sequence, 0 for an unknown one.
	Len(id SeqID) int
	Close() error
}
