// Package groupplan plans a group: what every rank computes, and the context and the
// memory of the KV caches that all ranks have room for. A plan is a function of values:
// the Options and what the ranks say of themselves. Equal values give equal plans.
//
//	planned, err := options.Plan(members, 0) // planned.Text explains it to people
//
// A Planner is the replica.Planner of a leader: it plans each epoch, and remembers what
// must stay as it is from epoch to epoch and what was measured.
package groupplan

import (
	"fmt"
	"strconv"
	"strings"

	"ringmaster/gguf"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// Options are what is known before any rank has joined.
type Options struct {
	Model      *gguf.File
	Sequences  int // held at once
	Context    int // most positions of a sequence; 0 is the most that the model allows and memory holds
	MaxTokens  int // most tokens of a step; 0: LongSteps on GPUs that have room, else decoder.DefaultMaxTokens
	Reduce     parallel.Reduce
	Share      Share
	Stages     Stages
	Overcommit bool  // a plan may need more memory than is free
	Lone       bool  // the only member will run without a group, so no other rank can take weights: a shorter context makes room for them
	Heap       int64 // bytes of the Go heap on rank 0, without what depends on the plan
	Measure    bool  // a group is measured even if nothing is to be chosen
	Portable   bool  // sequences are copied from rank 0 (--cache-dir), which those in stages cannot be
	// Chosen returns how often each expert was chosen, [layers][experts]; nil: unknown. With
	// Sum it decides nothing, so that every epoch of the same ranks has the same copies.
	Chosen func() [][]uint64
	// DraftFile has the block for multi-token prediction that rank 0 runs; nil: none.
	DraftFile *gguf.File
	// DraftSpared leaves the block out where the model or its context has no room beside it,
	// and in stages, where the last layer is not on rank 0.
	DraftSpared bool
}

// Share is what of the model is divided among the ranks, and how.
type Share struct {
	Of     parallel.Share // what, unless Auto
	Auto   bool           // what is expected to be faster
	Helper bool           // rank 0 has everything, and rank 1 helps it with prompts; Shares are their speeds
	Shares Shares
}

// ParseShare reads experts, all, auto or helper, and the shares after a colon, as in all:2,1,1.
func ParseShare(s string) (Share, error) {
	what, shares, given := strings.Cut(s, ":")
	out := Share{Auto: what == AutoShare, Helper: what == helperShare}
	var err error
	if !out.Auto && !out.Helper {
		if out.Of, err = parallel.ParseShare(what); err != nil {
			return Share{}, err
		}
	}
	if given {
		if out.Shares, err = parseShares(shares); err != nil {
			return Share{}, err
		}
	}
	return out, nil
}

// AutoShare is the Share that is the default of commands.
const AutoShare = "auto"

// String is what ParseShare reads.
func (s Share) String() string {
	what := s.Of.String()
	if s.Auto {
		what = AutoShare
	}
	if s.Helper {
		what = helperShare
	}
	if shares := s.Shares.String(); shares != "" {
		return what + ":" + shares
	}
	return what
}

// Check refuses shares that are not those of a world of so many ranks.
func (s Share) Check(ranks int) error {
	if n := len(s.Shares.Numbers); n > 0 && n != ranks {
		return fmt.Errorf("--share %v has %d numbers for %d ranks", s, n, ranks)
	}
	return s.checkHelper(ranks)
}

// Shares is how much of the model each rank gets. The zero value divides evenly.
type Shares struct {
	Memory  bool      // in proportion to the memory that each rank offers
	Numbers []float64 // else by these, by the ranks of the world
}

const sharesMemory = "memory"

// parseShares reads positive numbers separated by commas, or memory.
func parseShares(s string) (Shares, error) {
	if s == sharesMemory {
		return Shares{Memory: true}, nil
	}
	var out Shares
	for p := range strings.SplitSeq(s, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || !(v > 0) || v > 1e9 {
			return Shares{}, fmt.Errorf("%q is not a positive number", p)
		}
		out.Numbers = append(out.Numbers, v)
	}
	return out, nil
}

// String is what parseShares reads.
func (s Shares) String() string {
	if s.Memory {
		return sharesMemory
	}
	texts := make([]string, len(s.Numbers))
	for i, v := range s.Numbers {
		texts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(texts, ",")
}

// weights returns the shares of ranks of the world that are members of an epoch, given the
// memory in bytes that each has for what is divided, both [members].
func (s Shares) weights(ranks []int, memory []int64) ([]float64, error) {
	out := make([]float64, len(ranks))
	for i, r := range ranks {
		switch {
		case s.Memory:
			out[i] = float64(max(memory[i], 0))
		case len(s.Numbers) == 0:
			out[i] = 1
		case r < len(s.Numbers):
			out[i] = s.Numbers[r]
		default:
			return nil, fmt.Errorf("--share has the shares %v, and no number for rank %d", s, r)
		}
	}
	return out, nil
}

// MaxRanks is the most ranks of a group.
const MaxRanks = 8

// LeastContext is the context in tokens below which a plan is not made shorter to fit.
const LeastContext = 4096

// spare is the options without the block, and whether it may be left out.
func (o Options) spare() (Options, bool) {
	may := o.DraftFile != nil && o.DraftSpared
	if may {
		o.DraftFile = nil
	}
	return o, may
}

// noBlock says why a plan has no block.
func noBlock(why string) string {
	return fmt.Sprintf("no drafts from the model's block for multi-token prediction: %s\n", why)
}

// open is how the model is opened.
func (o Options) open() decoder.OpenOptions {
	return decoder.OpenOptions{Context: o.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce, DraftFile: o.DraftFile}
}

// fitContext plans the memory for the context of the options. If they leave it open, it
// starts at the context of the file and halves it until the plan fits or the context is
// down to LeastContext, so the caller must check the result with fits.
func (o Options) fitContext(fits func(decoder.Plan) bool) (decoder.Plan, error) {
	open := o.open()
	plan, err := arch.Plan(o.Model, open, o.Sequences)
	if err != nil {
		return plan, err
	}
	if o.Context > plan.ContextLimit {
		return plan, usage.Errorf("--ctx is %d; %s allows at most %d", o.Context, o.Model.Path(), plan.ContextLimit)
	}
	for o.Context == 0 && !fits(plan) && plan.Context > LeastContext {
		open.Context = plan.Context / 2
		if plan, err = arch.Plan(o.Model, open, o.Sequences); err != nil {
			return plan, err
		}
	}
	return plan, nil
}
