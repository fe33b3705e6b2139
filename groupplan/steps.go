package groupplan

import (
	"fmt"

	"ringmaster/model/decoder"
)

// LongSteps is the most tokens of a step on GPUs, if nothing else is asked for and memory has room:
// each step of a prompt decodes the weights of nearly all experts, so a GPU is expected to run
// prompts of a model with 256 experts 1.25 times as fast as by 512 tokens (docs/notes/metal.md).
const LongSteps = 2048

// longStepsKeep is which part of the conversations that memory holds with short steps it must hold
// with long ones. Buffers and the rings of every sequence are as deep as a step is long.
const longStepsKeep = 0.75

// held is what memory holds with steps of some length.
type held struct {
	context   int
	sequences float64 // of that context
	block     bool    // with the block for multi-token prediction
	staged    bool    // layers in stages
}

// holding is what memory holds with a budget of bytes for the KV caches.
func holding(context int, budget, perSequence int64, block, staged bool) held {
	return held{context, float64(budget) / float64(max(perSequence, 1)), block, staged}
}

// worth reports whether long steps take so little that they are taken.
func (long held) worth(short held) bool {
	enough := long.sequences >= longStepsKeep*short.sequences
	long.sequences = short.sequences
	return enough && long == short
}

// saysLong is what a plan says of long steps.
func saysLong() string {
	return fmt.Sprintf("steps of up to %d tokens, for which a GPU has room; --max-batch changes it\n", LongSteps)
}

// settleSteps makes a plan with the length of steps settled: what the options give, else long ones
// if only GPUs compute and these have room, else decoder.DefaultMaxTokens. It reports whether they
// are long because of that.
func settleSteps[P any](o Options, gpus bool, plan func(o Options) (P, error), holds func(p P) held) (_ P, long bool, _ error) {
	if o.MaxTokens > 0 {
		p, err := plan(o)
		return p, false, err
	}
	o.MaxTokens = decoder.DefaultMaxTokens
	short, err := plan(o)
	if err != nil || !gpus {
		return short, false, err
	}
	o.MaxTokens = LongSteps
	if p, failed := plan(o); failed == nil && holds(p).worth(holds(short)) {
		return p, true, nil
	}
	return short, false, nil
}
