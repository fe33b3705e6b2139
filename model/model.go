// Package model is the interface between the engine and a model: a model runs steps. A
// step is a value that names sequences, tokens and positions but no requests, so that it
// can be broadcast, repeated and recorded.
//
//	s := model.Step{Entries: []model.Entry{{Seq: 1, Tokens: prompt, Want: model.WantLast}}}
//	logits, err := m.Forward(ctx, s) // one row: that of the prompt's last token
//	if err == nil {
//		m.Commit(s) // now the tokens are part of sequence 1
//	}
package model

import "context"

// SeqID identifies a sequence and its KV cache. The engine chooses it and never
// uses it again for another sequence.
type SeqID uint32

// Want says for which tokens of an entry logits are computed.
type Want uint8

// The choices of Want.
const (
	WantNone Want = iota // none: a chunk of a prefill that is not the last
	WantLast             // the last token
	WantAll              // every token
)

// Entry is a run of tokens of one sequence.
type Entry struct {
	Seq SeqID
	// Pos is the position of Tokens[0]. A new sequence starts at 0. Pos equal
	// to the committed length extends the sequence; a smaller Pos first
	// rewinds it to Pos. A sequence can be rewound to 0, or by at most
	// Info.Rewind from the greatest length that was committed since it was
	// last at 0.
	Pos    int
	Tokens []int32
	Want   Want
}

// Step is one batch: chunks of prefills and single decoded tokens, each sequence at most
// once. Commit drops the sequences in Drop; none of them has an entry. A step without
// entries only drops and has no rows of logits. A sequence that a Forward named may hold
// memory, committed or not, until it is dropped; dropping an unknown sequence does
// nothing.
type Step struct {
	Drop    []SeqID
	Entries []Entry
}

// Info is what the engine needs to know about a model.
type Info struct {
	Name          string // general.name of the file
	Architecture  string
	Layers        int // of the model
	Vocab         int // length of a logits row
	ContextLength int // most positions of a sequence
	MaxTokens     int // most tokens of a step
	Rewind        int // most positions that Entry.Pos may be behind the greatest committed length
}

// Model runs steps. One goroutine uses it.
type Model interface {
	// Info is constant.
	Info() Info
	// Forward runs a step and returns its logits [wanted][Info.Vocab], a row
	// for each wanted token in the order of the entries, valid until the next
	// Forward. Until Commit the step has no effect: after an error, or
	// without Commit, the same or another step may follow. ctx cancels a long
	// step between layers. Errors may wrap ErrNoMemory, ErrUnavailable or
	// ctx's; any other means that the model has failed.
	Forward(ctx context.Context, s Step) ([][]float32, error)
	// Commit adds the tokens of s, the last step that Forward ran, to its
	// sequences.
	Commit(s Step)
	// Len is the committed length of a sequence, 0 for an unknown one.
	Len(id SeqID) int
	// Close frees the memory of the model.
	Close() error
}
