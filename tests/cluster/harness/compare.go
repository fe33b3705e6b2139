package harness

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// topTokens is how many alternatives are compared at each position.
const topTokens = 5

// Verdict is how the answer of a cluster compares with that of one rank.
type Verdict struct {
	Prompt, Tokens int // lengths
	// Position is where the first token differs, -1 if none does; One and
	// Many are the tokens there.
	Position  int
	One, Many Token
	// Bits is the first position where log probabilities differ in a bit,
	// -1 if none does. Asked for in mode exact alone.
	Bits int
	// Drift is, when both are given the tokens of one rank, how much the log
	// probability of each differs, [Tokens]. In mode sum alone.
	Drift []float64
	Flips int // positions where another token led
}

// Quantile is the drift that a part q (0 to 1) of the positions does not
// exceed.
func (v Verdict) Quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(v.Drift))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// CompareExact asks for the same answer twice and compares every bit that the
// API shows: tokens, their log probabilities and those of the alternatives.
func CompareExact(one, many *Answer, prompt int) Verdict {
	v := Verdict{Prompt: prompt, Tokens: len(one.Tokens), Position: -1, Bits: -1}
	for i := range max(len(one.Tokens), len(many.Tokens)) {
		a, b := at(one, i), at(many, i)
		if v.Bits < 0 && !a.Equal(b, true) {
			v.Bits = i
			v.One, v.Many = a, b
		}
		if !a.Equal(b, false) {
			v.Position, v.One, v.Many = i, a, b
			break
		}
	}
	return v
}

func at(a *Answer, i int) Token {
	if i < len(a.Tokens) {
		return a.Tokens[i]
	}
	return Token{Name: "(end)"}
}

// Ask streams a whole answer; one that fails or is too short is an error.
func Ask(ctx context.Context, c *Client, prompt []int32, tokens int) (*Answer, error) {
	a, err := c.Complete(ctx, Request{Prompt: prompt, MaxTokens: tokens, Top: topTokens})
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		return nil, fmt.Errorf("status %d: %s", a.Status, a.Err.Message)
	case len(a.Tokens) != tokens:
		return nil, fmt.Errorf("%d tokens came, %d were asked for (finish %q)", len(a.Tokens), tokens, a.Finish)
	}
	return a, nil
}

// CompareSum compares answers whose sums were rounded differently. After the
// first other token two greedy answers have nothing in common any more, so the
// cluster is besides given the tokens of one rank, position by position, and
// its log probabilities are held against theirs.
func CompareSum(ctx context.Context, many *Client, v *Vocabulary, prompt []int32, one, greedy *Answer) (Verdict, error) {
	out := CompareExact(one, greedy, len(prompt))
	out.Bits = -1
	ids, err := v.IDs(one.Tokens)
	if err != nil {
		return out, err
	}
	whole := append(append([]int32(nil), prompt...), ids...)
	forced, err := many.Complete(ctx, Request{Prompt: whole, MaxTokens: 1, Top: topTokens, Echo: true})
	switch {
	case err != nil:
		return out, err
	case forced.Err != nil:
		return out, fmt.Errorf("status %d: %s", forced.Status, forced.Err.Message)
	case len(forced.Prompt) != len(whole):
		return out, fmt.Errorf("%d log probabilities came for a prompt of %d tokens", len(forced.Prompt), len(whole))
	}
	for i, a := range one.Tokens {
		b := forced.Prompt[len(prompt)+i]
		if a.Name != b.Name {
			return out, fmt.Errorf("position %d: the echo calls token %q %q", i, a.Name, b.Name)
		}
		out.Drift = append(out.Drift, math.Abs(a.Logprob-b.Logprob))
		for _, p := range b.Top {
			if p > b.Logprob {
				out.Flips++
				break
			}
		}
	}
	return out, nil
}

// Gap is how much likelier one rank's token was to one rank than the cluster's,
// where they differ first; false if that was not among the alternatives.
func (v Verdict) Gap() (float64, bool) {
	other, ok := v.One.Top[v.Many.Name]
	return v.One.Logprob - other, ok
}
