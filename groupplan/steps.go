package groupplan

import (
	"fmt"
	"slices"

	"ringmaster/distributed/cluster"
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
}

// worth reports whether long steps take so little that they are taken.
func (long held) worth(short held) bool {
	return long.context == short.context && long.block == short.block && long.sequences >= longStepsKeep*short.sequences
}

// saysLong is what a plan says of long steps.
func saysLong() string {
	return fmt.Sprintf("steps of up to %d tokens, for which a GPU has room; --max-batch changes it\n", LongSteps)
}

func heldAlone(p decoder.Plan) held {
	return held{p.Context, float64(p.Budget) / float64(max(p.PerSequence(), 1)), p.DraftWeights > 0}
}

// aloneBySteps is Alone with the length of steps settled: what was given, long ones on a GPU that has
// room, else decoder.DefaultMaxTokens.
func (o Options) aloneBySteps(r Room) (plan decoder.Plan, text string, err error) {
	if o.MaxTokens > 0 {
		return o.aloneOrSpared(r)
	}
	o.MaxTokens = decoder.DefaultMaxTokens
	plan, text, err = o.aloneOrSpared(r)
	if err != nil || r.Threads > 0 {
		return plan, text, err
	}
	o.MaxTokens = LongSteps
	if long, says, failed := o.aloneOrSpared(r); failed == nil && heldAlone(long).worth(heldAlone(plan)) {
		return long, says + saysLong(), nil
	}
	return plan, text, nil
}

func (p Planned) held() held {
	return held{p.Settings.Context, float64(p.Settings.SequenceBudget) / float64(max(p.Ranks[0].Sequence, 1)), p.Settings.Block}
}

// bySteps is a plan of a group with the length of steps settled: what was given, long ones if all
// members compute on GPUs that have room, else decoder.DefaultMaxTokens.
func (o Options) bySteps(members []cluster.Hello, plan func(o Options) (Planned, error)) (Planned, error) {
	if o.MaxTokens > 0 {
		return plan(o)
	}
	o.MaxTokens = decoder.DefaultMaxTokens
	p, err := plan(o)
	if err != nil || slices.ContainsFunc(members, func(m cluster.Hello) bool { return m.Threads > 0 }) {
		return p, err
	}
	o.MaxTokens = LongSteps
	if long, failed := plan(o); failed == nil && long.held().worth(p.held()) && long.Settings.Placement.Staged() == p.Settings.Placement.Staged() {
		long.Text += saysLong()
		return long, nil
	}
	return p, nil
}
