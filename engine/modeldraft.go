package engine

import (
	"context"
	"time"

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
	// hopelessDrafts is after how many drafts of a model of which none was right it is not
	// asked again: its block does not fit it.
	hopelessDrafts = 256
)

// modelAsking is how asking the model for drafts has gone.
type modelAsking struct {
	seconds float64 // of a call, per sequence and draft; 0: none was made
	skipped int     // steps since the last call
}

// draftsToAsk returns how many drafts of each of so many sequences the model is asked for in
// a step that only decodes, 0 if that is not expected to pay: the first drafts must add more
// tokens for their time than the step has without them. Now and then it is asked for one
// anyway, because an estimate that is too low stays otherwise.
func (s *scheduler) draftsToAsk(n int) int {
	if s.always {
		return modelDrafts
	}
	rows := 0
	for _, t := range s.active {
		if t.decode {
			rows++
		}
	}
	plain, row := s.pace.step(0, max(rows, n))
	p := s.odds.of(drafts.Model, modelMatch, tally{})
	if p*plain > float64(max(rows, n))*(row+s.model.seconds) {
		s.model.skipped = 0
		return modelDrafts
	}
	if s.model.skipped = (s.model.skipped + 1) % hopeless; s.model.skipped == 0 {
		return 1
	}
	return 0
}

// draftByModel asks the model for drafts where texts have none that are likely. It waits for
// masks until over is closed.
func (e *Engine) draftByModel(all []*asking, over <-chan time.Time) {
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
	if len(entries) == 0 || e.modelIsHopeless() {
		return
	}
	e.mu.Lock()
	most := e.sched.draftsToAsk(len(entries))
	e.mu.Unlock()
	if most == 0 {
		return
	}
	for i := range entries {
		entries[i].Most = min(entries[i].Most, most)
	}
	began := e.opts.Clock()
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
	guesses, err := e.askModel(m, entries, pick)
	if err != nil {
		e.opts.Logger.Warn("the model's block for drafts failed; steps have none of it from now on", "error", err)
		e.opts.ModelDrafts = false
		return
	}
	made, refused := 0, 0
	for i, tokens := range guesses {
		made += len(tokens)
		if n := min(len(tokens), entries[i].Most); n > 0 {
			g := drafts.Guess{Tokens: tokens[:n], Source: drafts.Model, Match: modelMatch}
			if whose[i].guess = whose[i].run.mask.improve(g, whose[i].most, over); len(whose[i].guess.Tokens) == 0 {
				refused++
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for range refused { // by a constraint: they were wrong, and cost what others do
		e.sched.odds[drafts.Model][kindOf(modelMatch)].add(false)
	}
	if took := e.opts.Clock().Sub(began).Seconds(); made > 0 && took > 0 {
		average(&e.sched.model.seconds, took/float64(made))
	}
}

// askModel asks the model for drafts. A panic of the model is an error like any other.
func (e *Engine) askModel(m model.Drafter, entries []model.DraftEntry, pick model.Pick) (guesses [][]int32, err error) {
	defer func() {
		if v := recover(); v != nil {
			guesses, err = nil, e.panicked(v)
		}
	}()
	return m.Draft(context.Background(), entries, pick)
}

// modelIsHopeless reports whether no draft of the model was ever right. Then it is not asked
// again.
func (e *Engine) modelIsHopeless() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	run, right := uint64(0), uint64(0)
	counts := &e.counts.drafts[drafts.Model]
	for i := range counts.Run {
		run, right = run+counts.Run[i], right+counts.Accepted[i]
	}
	if right > 0 || run < hopelessDrafts {
		return false
	}
	e.opts.Logger.Warn("the model's block for multi-token prediction guesses nothing right, so it is not used from now on; it may belong to another model", "drafts", run)
	e.opts.ModelDrafts = false
	return true
}
