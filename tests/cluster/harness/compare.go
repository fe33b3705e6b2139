package harness

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// topTokens is how many alternatives are compared at each position.
const topTokens = 5

// Verdict is the result of comparing the answer of a cluster with that of one rank.
type Verdict struct {
	Prompt, Tokens int // lengths
	// Position is that of the first token that differs, -1 if none does; One and
	// Many are the tokens there.
	Position  int
	One, Many Token
	// Bits is the first position where log-probabilities are not identical, -1 if
	// all are. Set by CompareExact only.
	Bits int
	// Drift is how much the log-probability of each token differs when both
	// evaluate the tokens of one rank, [Tokens]. Set by CompareSum only.
	Drift []float64
	Flips int // positions where the cluster prefers another token
}

// Quantile returns the drift that a fraction q (0 to 1) of the positions does not
// exceed.
func (v Verdict) Quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(v.Drift))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// CompareExact compares all that the API returns: tokens, their log-probabilities
// and those of the alternatives, bit for bit.
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

// Ask streams a complete answer. An answer that fails or is too short is an error.
func Ask(ctx context.Context, c *Client, prompt []int32, tokens int) (*Answer, error) {
	a, err := c.Complete(ctx, Request{Prompt: prompt, MaxTokens: tokens, Top: topTokens})
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		return nil, fmt.Errorf("status %d: %s", a.Status, a.Err.Message)
	case len(a.Tokens) != tokens:
		return nil, fmt.Errorf("received %d tokens, requested %d (finish %q)", len(a.Tokens), tokens, a.Finish)
	}
	return a, nil
}

// CompareSum compares answers with sums that were rounded differently. The cluster also
// evaluates the tokens of one rank, and its log-probabilities are compared with theirs at
// each position, because two greedy answers have nothing in common after the first
// different token.
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
		return out, fmt.Errorf("received %d log-probabilities for a prompt of %d tokens", len(forced.Prompt), len(whole))
	}
	for i, a := range one.Tokens {
		b := forced.Prompt[len(prompt)+i]
		if a.Name != b.Name {
			return out, fmt.Errorf("position %d: token %q is %q in the echo", i, a.Name, b.Name)
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

// Gap returns by how much one rank prefers its own token to the cluster's at the
// first difference, in log-probability; false if the cluster's token is not among
// one rank's alternatives.
func (v Verdict) Gap() (float64, bool) {
	other, ok := v.One.Top[v.Many.Name]
	return v.One.Logprob - other, ok
}
