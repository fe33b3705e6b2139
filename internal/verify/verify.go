package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"ringmaster/internal/safetext"
)

// The verdicts of a check.
const (
	Pass       = "pass"
	Fail       = "fail"
	NotChecked = "not checked"
)

// Check is one examination with its figures.
type Check struct {
	Name    string             `json:"name"`
	Verdict string             `json:"verdict"`
	Detail  string             `json:"detail"`
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Report is the outcome, for a file.
type Report struct {
	Time        time.Time `json:"time"`
	Program     string    `json:"program"` // the build that examined
	URL         string    `json:"url"`
	Model       string    `json:"model"`
	Fingerprint string    `json:"system_fingerprint"`
	Against     string    `json:"against,omitempty"`
	Reduce      string    `json:"reduce"`
	Prompts     int       `json:"prompts"`
	Tokens      int       `json:"tokens"`
	Checks      []Check   `json:"checks"`
	Verdict     string    `json:"verdict"`

	// Of the group, if it was examined.
	Coordinator string       `json:"coordinator,omitempty"`
	Group       *Group       `json:"group,omitempty"`
	Seed        uint64       `json:"seed,omitempty"`
	Differences []Difference `json:"differences,omitempty"` // at most 1000
	Expected    *Expected    `json:"expected_link,omitempty"`
	Links       []Link       `json:"links,omitempty"`
}

// Record is what one server answered, for comparisons later and elsewhere.
type Record struct {
	Model       string   `json:"model"`
	Fingerprint string   `json:"system_fingerprint"`
	Tokens      int      `json:"tokens"` // of each answer
	Prompts     []string `json:"prompts"`
	Answers     []Answer `json:"answers"`
}

// Options say how to examine.
type Options struct {
	Prompts   []string
	Tokens    int     // of each answer
	Exact     bool    // log-probabilities must be equal to the last bit
	Tolerance float64 // otherwise, for the median difference of log-probabilities
	Decode    float64 // least tokens per second of one sequence; 0: any
}

// Verify examines a server, and compares it with other and record unless they are nil. It
// returns the answers as a record. An error means that a server could not be asked;
// differences are in the report.
func Verify(ctx context.Context, s, other *Server, record *Record, o Options) (*Report, *Record, error) {
	r := &Report{URL: s.Base, Prompts: len(o.Prompts), Tokens: o.Tokens, Reduce: "sum", Verdict: Pass}
	if o.Exact {
		r.Reduce = "exact"
	}
	alone, err := askAll(ctx, s, o, func(int) map[string]any { return withoutDrafts })
	if err != nil {
		return nil, nil, err
	}
	r.Model, r.Fingerprint = s.Model, s.Fingerprint
	again, err := askAll(ctx, s, o, nil)
	if err != nil {
		return nil, nil, err
	}
	exact := o
	exact.Exact = true
	r.Add(compare("repeat", "asked twice in turn", alone, again, exact))
	drafted, err := askAll(ctx, s, o, func(i int) map[string]any { return expecting(alone, i) })
	if err != nil {
		return nil, nil, err
	}
	r.Add(compare("drafts", "asked without drafts and with a prediction that is partly right", alone, drafted, exact))
	together, rate, err := askTogether(ctx, s, o)
	if err != nil {
		return nil, nil, err
	}
	r.Add(compare("company", "asked alone and all at once", alone, together, o))
	r.Add(speed(alone, rate, o))
	reference := Check{Name: "reference", Verdict: NotChecked, Detail: "no other server and no record to compare with: --against or --recorded"}
	switch {
	case other != nil:
		r.Against = other.Base
		theirs, err := askAll(ctx, other, o, nil)
		if err != nil {
			return nil, nil, err
		}
		reference = compare("reference", "this server and "+other.Base, theirs, alone, o)
	case record != nil:
		r.Against = "record of " + safetext.Line(record.Fingerprint, safetext.Evidence)
		reference = compare("reference", "this server and the record", pointers(record.Answers), alone, o)
	}
	r.Add(reference)
	made := &Record{Model: s.Model, Fingerprint: s.Fingerprint, Tokens: o.Tokens, Prompts: o.Prompts}
	for _, a := range alone {
		made.Answers = append(made.Answers, *a)
	}
	return r, made, nil
}

func pointers(answers []Answer) (out []*Answer) {
	for i := range answers {
		out = append(out, &answers[i])
	}
	return out
}

// Add adds a check to the report.
func (r *Report) Add(c Check) {
	r.Checks = append(r.Checks, c)
	if c.Verdict == Fail {
		r.Verdict = Fail
	}
}

// withoutDrafts is a field of Ringmaster's that turns speculative decoding off.
var withoutDrafts = map[string]any{"drafts": false}

// expecting returns a prediction for a prompt: its answer, with parts of another prompt's
// in between, so that some drafts are right and others wrong.
func expecting(answers []*Answer, i int) map[string]any {
	own, other := answers[i], answers[(i+1)%len(answers)]
	var b strings.Builder
	for j, t := range own.Tokens[own.Prompt:] {
		b.WriteString(t.Text)
		if j%12 == 11 {
			for _, t := range other.Tokens[other.Prompt:][:min(6, len(other.Tokens)-other.Prompt)] {
				b.WriteString(t.Text)
			}
		}
	}
	return map[string]any{"prediction": map[string]any{"type": "content", "content": b.String()}}
}

// askAll asks all prompts in turn; fields, unless it is nil, returns further fields of the
// request for a prompt.
func askAll(ctx context.Context, s *Server, o Options, fields func(i int) map[string]any) (out []*Answer, err error) {
	for i, p := range o.Prompts {
		var more map[string]any
		if fields != nil {
			more = fields(i)
		}
		a, err := s.Ask(ctx, p, o.Tokens, more)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// askTogether asks all prompts at once, and returns the tokens per second of all answers.
func askTogether(ctx context.Context, s *Server, o Options) ([]*Answer, float64, error) {
	out, errs := make([]*Answer, len(o.Prompts)), make([]error, len(o.Prompts))
	begun := time.Now()
	var wg sync.WaitGroup
	for i, p := range o.Prompts {
		one := *s // Ask notes the fingerprint
		wg.Go(func() { out[i], errs[i] = one.Ask(ctx, p, o.Tokens, nil) })
	}
	wg.Wait()
	took := time.Since(begun).Seconds()
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return out, float64(len(o.Prompts)*o.Tokens) / took, nil
}

// compare compares answers to the same prompts. If they need not be exact, rounding
// differs: tokens may differ where two are almost equal. Then the prompts'
// log-probabilities decide, because they follow the same tokens on both sides.
func compare(name, what string, one, two []*Answer, o Options) Check {
	c := Check{Name: name, Verdict: Pass, Figures: map[string]float64{}}
	var drift []float64
	positions, bits, flips := 0, "", ""
	for i := range one {
		a, b := one[i], two[i]
		for j := range max(len(a.Tokens), len(b.Tokens)) {
			if j >= len(a.Tokens) || j >= len(b.Tokens) || a.Tokens[j].Text != b.Tokens[j].Text {
				flips = cmp.Or(flips, fmt.Sprintf("prompt %d, token %d: %s and %s", i, j, show(a, j), show(b, j)))
				break // after a different token the rest has nothing in common
			}
			positions++
			x, y := a.Tokens[j], b.Tokens[j]
			drift = append(drift, math.Abs(x.Logprob-y.Logprob))
			if x.Logprob != y.Logprob || !maps.Equal(x.Top, y.Top) {
				bits = cmp.Or(bits, fmt.Sprintf("prompt %d, token %d: %s and %s", i, j, show(a, j), show(b, j)))
			}
		}
	}
	slices.Sort(drift)
	c.Figures["positions"] = float64(positions)
	if len(drift) > 0 {
		c.Figures["median_difference"], c.Figures["largest_difference"] = drift[len(drift)/2], drift[len(drift)-1]
	}
	median := c.Figures["median_difference"]
	switch {
	case flips == "" && bits == "":
		c.Detail = fmt.Sprintf("%s: the same %d tokens, the same bits", what, positions)
	case o.Exact:
		c.Verdict, c.Detail = Fail, fmt.Sprintf("%s: different, first at %s", what, cmp.Or(flips, bits))
	case positions == 0 || median > o.Tolerance:
		c.Verdict, c.Detail = Fail, fmt.Sprintf("%s: log-probabilities differ by %.2g (median of %d), more than %.2g; first at %s", what, median, positions, o.Tolerance, cmp.Or(flips, bits))
	default:
		c.Detail = fmt.Sprintf("%s: equal except for rounding: log-probabilities differ by %.2g (median of %d)", what, median, positions)
		if flips != "" {
			c.Detail += "; first other token at " + flips
		}
	}
	return c
}

func show(a *Answer, i int) string {
	if i >= len(a.Tokens) {
		return "(end)"
	}
	return fmt.Sprintf("%q (%v)", safetext.Line(a.Tokens[i].Text, safetext.Evidence), a.Tokens[i].Logprob)
}

// speed takes the rates from the answers that were asked one after another. The echoed
// prompt is the first event, so that the time to it is the prefill.
func speed(alone []*Answer, together float64, o Options) Check {
	var decode, prefill []float64
	for _, a := range alone {
		if d := (a.last - a.first).Seconds(); d > 0 && a.events > 2 {
			decode = append(decode, float64(len(a.Tokens)-a.Prompt-1)/d)
		}
		if a.first > 0 {
			prefill = append(prefill, float64(a.Prompt)/a.first.Seconds())
		}
	}
	c := Check{Name: "speed", Verdict: Pass, Figures: map[string]float64{"decode_tokens_per_second": median(decode), "prefill_tokens_per_second": median(prefill), "together_tokens_per_second": together}}
	c.Detail = fmt.Sprintf("decode %.1f tokens/s, prefill %.1f tokens/s (medians, one sequence, with log-probabilities), all at once %.1f tokens/s", median(decode), median(prefill), together)
	if o.Decode > 0 && median(decode) < o.Decode {
		c.Verdict = Fail
		c.Detail += fmt.Sprintf("; expected %.1f", o.Decode)
	}
	return c
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
