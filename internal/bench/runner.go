package bench

import (
	"context"
	"math/rand/v2"

	"ringmaster/model"
)

// runner is a set of sequences that advance together.
type runner struct {
	model  model.Model
	ids    []model.SeqID
	tokens [][]int32
}

// newRunner returns new sequences with random tokens for a measurement.
func (b *bench) newRunner(m *Measurement) *runner {
	r := &runner{model: b.t.Model}
	vocab := int32(b.t.Model.Info().Vocab)
	for i := range m.Sequences {
		b.next++
		r.ids = append(r.ids, b.next)
		random := rand.New(rand.NewPCG(1, 2+uint64(i)))
		tokens := make([]int32, m.Depth+m.N+MostDrafts)
		for j := range tokens {
			tokens[j] = random.Int32N(vocab)
		}
		r.tokens = append(r.tokens, tokens[:m.Depth+m.N]) // the rest is for drafts
	}
	return r
}

// first returns the first n of the sequences.
func (r *runner) first(n int) *runner {
	return &runner{model: r.model, ids: r.ids[:n], tokens: r.tokens[:n]}
}

// advance evaluates the tokens [pos, pos+n) of every sequence, in steps of at
// most perStep tokens of each, as the engine runs a prompt.
func (r *runner) advance(ctx context.Context, pos, n, perStep int) error {
	leavesOut := r.model.Info().Tail > 0
	for end := pos + n; pos < end; {
		k := min(end-pos, max(perStep, 1))
		var s model.Step
		for i, id := range r.ids {
			e := model.Entry{Seq: id, Pos: pos, Tokens: r.tokens[i][pos : pos+k], Want: model.WantLast}
			if leavesOut {
				e.Until = end
			}
			if leavesOut && pos+k < end {
				e.Want = model.WantNone
			}
			s.Entries = append(s.Entries, e)
		}
		if _, err := r.model.Forward(ctx, s); err != nil {
			return err
		}
		r.model.Commit(s)
		pos += k
	}
	return nil
}

// MostDrafts is the most drafts of a sequence in a step.
const MostDrafts = 64

// decode is advance by single tokens with so many drafts behind each, which are not kept.
func (r *runner) decode(ctx context.Context, pos, n, drafts int) error {
	for end := pos + n; pos < end; pos++ {
		var s model.Step
		var kept []int
		for i, id := range r.ids {
			s.Entries = append(s.Entries, model.Entry{Seq: id, Pos: pos, Tokens: r.tokens[i][pos : pos+1+drafts], Want: model.WantAll})
			kept = append(kept, 1)
		}
		if _, err := r.model.Forward(ctx, s); err != nil {
			return err
		}
		s, err := s.Truncated(kept)
		if err != nil {
			return err
		}
		r.model.Commit(s)
	}
	return nil
}

// drop frees the sequences.
func (r *runner) drop(ctx context.Context) error {
	s := model.Step{Drop: r.ids}
	if _, err := r.model.Forward(ctx, s); err != nil {
		return err
	}
	r.model.Commit(s)
	return nil
}
