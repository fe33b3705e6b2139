package engine

import (
	"context"

	"ringmaster/engine/drafts"
	"ringmaster/model"
)

const (
	// modelDrafts is the most drafts of the model for one sequence in a step. A block is
	// trained for the first of them.
	modelDrafts = 4
	// sureMatch is the shortest match of a text that is taken in place of the model's drafts.
	sureMatch = 6
	// modelMatch is the match of texts that the model's drafts are taken to be as good as,
	// before their own outcomes are known.
	modelMatch = 8
)

// draftByModel asks the model for drafts where texts have none that are likely.
func (e *Engine) draftByModel(all []*asking) {
	m, ok := e.model.(model.Drafter)
	if !ok || !e.opts.ModelDrafts {
		return
	}
	var entries []model.DraftEntry
	var whose []*asking
	for _, a := range all {
		if a.most > 0 && a.guess.Match < sureMatch {
			entries = append(entries, model.DraftEntry{Seq: a.seq, Token: a.token, Most: min(a.most, modelDrafts)})
			whose = append(whose, a)
		}
	}
	if len(entries) == 0 {
		return
	}
	// A draft is drawn with a copy of what will draw the answer, so that it is right also at
	// a temperature if the block's logits are near the model's.
	samplers := make([]*sampler, len(entries))
	var mem scratch
	pick := func(i, _ int, row []float32) (int32, bool) {
		r := whose[i].run
		if samplers[i] == nil {
			samplers[i] = r.sampler.copy()
		}
		row = row[:e.size]
		if firstBad(row) >= 0 {
			return 0, false
		}
		id := samplers[i].draw(row, excludable(row, r.req.Banned), &mem)
		return id, !e.vocab.IsEnd(id)
	}
	guesses, err := m.Draft(context.Background(), entries, pick)
	if err != nil {
		e.opts.Logger.Warn("the model's block for drafts failed; steps have none of it from now on", "error", err)
		e.opts.ModelDrafts = false
		return
	}
	for i, tokens := range guesses {
		if n := min(len(tokens), entries[i].Most); n > 0 {
			whose[i].guess = drafts.Guess{Tokens: tokens[:n], Source: drafts.Model, Match: modelMatch}
		}
	}
}
