package model

import "context"

// Drafter is a Model that has a block of its own to guess the tokens that follow. Guesses
// are tokens of a later step, so only the rank that returns logits needs the block, and a
// wrong or missing guess changes no answer.
//
// The block reads hidden states of committed rows: those of the last step are still in the
// model's buffers when Draft is called, after Commit and before the next Prepare.
type Drafter interface {
	// Draft guesses for each entry the tokens that follow its Token. It returns [entries][at
	// most Most] ids; none for a sequence that it cannot guess for. pick chooses the id of
	// each guess from its row of logits. An error costs the drafts of this step only.
	Draft(ctx context.Context, entries []DraftEntry, pick Pick) ([][]int32, error)
}

// DraftEntry asks for guesses.
type DraftEntry struct {
	Seq   SeqID
	Token int32 // it follows the committed tokens, and the next step runs it
	Most  int   // guesses
}

// Pick chooses an id from the row of logits [Info.Vocab] of guess number depth, from 0, of
// entries[i]. If more is false, it is the last guess of the entry.
type Pick func(i, depth int, logits []float32) (id int32, more bool)
