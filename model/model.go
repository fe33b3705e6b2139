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
	// Until promises that entries will extend the sequence to this length, with no Want
	// other than WantLast at the last of them. A model may then leave out what neither these
	// entries nor later tokens need of the positions before (Info.Tail); no logits depend on
	// what it leaves out. 0 promises nothing, and nothing is left out of the entry.
	//
	// From an entry that ends before its Until the sequence is partial up to
	// Info.WholeAt(Until, its length): an entry that does not begin at 0 must have at least
	// that Until, and checkpoints and forks are possible only where checkpoints were taken
	// before.
	Until int
}

// Step is one batch: chunks of prefills and single decoded tokens, each sequence at most
// once. First the step takes its Checkpoints, then it makes its Forks, both from what is
// committed; then it runs its Entries, which may extend those forks. Commit drops the
// sequences in Drop; none of them has an entry or checkpoints, or is a fork, but forks may
// come from them. A step without entries has no rows of logits. A sequence that a Forward
// named may hold memory, committed or not, until it is dropped; dropping an unknown
// sequence does nothing.
type Step struct {
	Drop        []SeqID
	Checkpoints []Checkpoints
	Forks       []Fork
	Entries     []Entry
	// Help [entries] makes a helper compute the last layers of entries, see parallel.Help. It
	// is the length up to which the helper has the state of each sequence: rank 0 sends it what
	// it has of the positions from there to Entry.Pos; Unhelped for an entry that rank 0 runs
	// alone. nil: it runs all alone. Whoever runs steps on a group sets it.
	Help []int
}

// Unhelped is the Help of an entry that does not go through the helper.
const Unhelped = -1

// Checkpoints says at which lengths a sequence has checkpoints from this step on: the step
// takes those that are new and frees those that are not listed. A checkpoint is a copy of
// the state at a committed length that later tokens overwrite, so that forks can begin there
// later. It can be taken as long as the sequence could be rewound to the length. A rewind
// frees the checkpoints beyond it. A model that can be rewound to any length needs none;
// they take no memory in it.
type Checkpoints struct {
	Seq SeqID
	At  []int // ascending, positive, at most snapshot.MaxCheckpoints
}

// Fork makes a new sequence, Seq, of the first Length committed tokens of From, which stays
// as it is. Length is positive. If From could be rewound to Length, Seq counts as having had
// From's greatest length, so it can be rewound as far as From. Otherwise From must have a
// checkpoint at Length, perhaps one of the same step. Seq then counts as having had the
// length Length+Info.Rewind, so it cannot be rewound to less than Length, except to 0. Seq
// has From's checkpoints up to Length. Its logits have the bits of a sequence that ran all
// its tokens itself.
type Fork struct {
	Seq, From SeqID
	Length    int
	// Replay makes Seq of what From keeps of its first Length tokens for good, whatever
	// later tokens have overwritten and also if From is partial. Seq begins with
	// Info.Begins tokens and can do nothing but run the same tokens again up to Length, by
	// entries with an Until of at least Length; it is partial up to there. A layer computes
	// only the rows that the windows of later layers reach, so these tokens cost half of what
	// they cost otherwise, or less if Until is far beyond Length.
	Replay bool
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
	// Tail is how many of the last positions before an Entry.Until the model runs more of
	// than of those before them; 0 if it leaves out nothing.
	Tail int
	// Replay is how many tokens run again in a fork with Replay, which must have more; 0 if
	// the model has no such forks.
	Replay int
}

// Begins is how many tokens a fork begins with.
func (i Info) Begins(f Fork) int {
	if f.Replay {
		return f.Length - i.Replay
	}
	return f.Length
}

// WholeAt returns up to which length a sequence is partial that has been extended to length
// by an entry with an Until, 0 if it is whole. replayed is the length up to which a fork runs
// tokens again, 0 for other sequences.
func (i Info) WholeAt(until, length, replayed int) int {
	if i.Tail == 0 || until <= length {
		return 0
	}
	return min(until, max(length, replayed)+i.Tail)
}

// Model runs steps. One goroutine uses it.
type Model interface {
	// Info is constant.
	Info() Info
	// Forward runs a step and returns its logits [wanted][Info.Vocab], a row
	// for each wanted token in the order of the entries, valid until the next
	// Forward. Until Commit the step has no effect: after an error, or
	// without Commit, the same or another step may follow. But tokens
	// that a step rewound are lost once it has run: later steps must rewind as far.
	// ctx cancels a long step between layers. Errors may wrap ErrNoMemory,
	// ErrUnavailable or ctx's; any other means that the model has failed.
	Forward(ctx context.Context, s Step) ([][]float32, error)
	// Commit adds the tokens of s to its sequences. s is the last step that Forward ran, or
	// its Truncated form: the tokens that it leaves out then leave no trace, as if they had
	// not been run.
	Commit(s Step)
	// Len is the committed length of a sequence, 0 for an unknown one.
	Len(id SeqID) int
	// Close frees the memory of the model.
	Close() error
}
