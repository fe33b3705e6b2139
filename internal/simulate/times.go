package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Rates makes the times of steps from what bench measures: the tokens per second of a
// prefill, and of decoding with one or more numbers of sequences. Between two of them a
// step's time is interpolated. Fewer sequences than the first take as long as the first;
// more than the last continue its slope, or grow in proportion if there is one rate only.
// A step with prompts and decoding takes the sum of both. A draft takes what a further
// sequence does, and beside prompts what a token of theirs does.
func Rates(prefill float64, decode []Rate) (StepTime, error) {
	if !(prefill > 0) || math.IsInf(prefill, 0) {
		return nil, fmt.Errorf("a prefill of %v tokens a second, expected a positive number", prefill)
	}
	if len(decode) == 0 {
		return nil, errors.New("no rate of decoding")
	}
	decode = slices.Clone(decode)
	slices.SortFunc(decode, func(a, b Rate) int { return a.Sequences - b.Sequences })
	at := make([]float64, len(decode)) // seconds of a step
	for i, r := range decode {
		switch {
		case r.Sequences < 1 || i > 0 && r.Sequences == decode[i-1].Sequences:
			return nil, fmt.Errorf("decoding of %d sequences is given twice or is none", r.Sequences)
		case !(r.PerSecond > 0) || math.IsInf(r.PerSecond, 0):
			return nil, fmt.Errorf("decoding of %d sequences at %v tokens a second, expected a positive number", r.Sequences, r.PerSecond)
		}
		at[i] = float64(r.Sequences) / r.PerSecond
	}
	last := len(decode) - 1
	slope := at[0] / float64(decode[0].Sequences) // of one rate alone: in proportion
	if last > 0 {
		slope = max(0, (at[last]-at[last-1])/float64(decode[last].Sequences-decode[last-1].Sequences))
	}
	step := func(n int) float64 {
		i, _ := slices.BinarySearchFunc(decode, n, func(r Rate, n int) int { return r.Sequences - n })
		switch {
		case i == 0:
			return at[0]
		case i > last:
			return at[last] + slope*float64(n-decode[last].Sequences)
		}
		part := float64(n-decode[i-1].Sequences) / float64(decode[i].Sequences-decode[i-1].Sequences)
		return at[i-1] + part*(at[i]-at[i-1])
	}
	return func(prompt, decoding, drafts int) time.Duration {
		if prompt > 0 {
			prompt += drafts
		} else {
			decoding += drafts
		}
		s := float64(prompt) / prefill
		if decoding > 0 {
			s += step(decoding)
		}
		return nanoseconds(math.Ceil(s * 1e9))
	}, nil
}
