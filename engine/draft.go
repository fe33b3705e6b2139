package engine

import (
	"slices"
	"time"

	"ringmaster/engine/drafts"
	"ringmaster/model"
)

// Speculative decoding. A sequence that decodes may run drafts behind the token that was
// sampled last: guesses of the tokens that follow. Each row is then sampled exactly as
// without drafts, and the next row counts only if its draft is the token that was sampled.
// What was run beyond is not committed. So drafts change no answer, however they are made
// and however many there are; they only decide how many steps it takes.

// Drafter guesses how the text of one request continues. One goroutine uses it.
type Drafter interface {
	// Add appends tokens of the prompt or of the answer.
	Add(ids ...int32)
	// Beside adds a text that the answer may repeat.
	Beside(source drafts.Source, ids []int32)
	// Draft guesses at most so many of the tokens that follow.
	Draft(most int) drafts.Guess
}

// TextDrafter is an Options.Drafter that finds drafts in texts.
func TextDrafter(*Request) Drafter { return &drafts.Texts{} }

// DraftStats counts drafts by their depth: the first counts behind the token that was
// sampled last, the second behind the first.
type DraftStats struct {
	Run      [drafts.Most]uint64 // had a row in a step
	Accepted [drafts.Most]uint64 // of these, were what was sampled
}

// asking is a request that decodes in the next step, and its draft.
type asking struct {
	run   *run
	seq   model.SeqID
	token int32 // that the next step runs
	most  int   // tokens of a draft that the answer has room for
	guess drafts.Guess
}

// draft makes drafts for the sequences that decode in the next step.
func (e *Engine) draft() {
	if e.opts.Drafter == nil && !e.opts.ModelDrafts {
		return
	}
	var all []*asking
	e.mu.Lock()
	for _, t := range e.sched.active {
		if r := e.runs[t.id]; r != nil && !r.req.NoDrafts && t.decode && len(t.todo) > 0 && !t.guess.asked {
			// A draft of the last token that the answer may have would have a row for nothing.
			all = append(all, &asking{run: r, seq: t.seq, token: t.todo[0], most: min(drafts.Most, r.maxTokens-r.usage.Completion-1)})
		}
	}
	e.mu.Unlock()
	if len(all) == 0 {
		return
	}
	over := make(chan time.Time)
	defer time.AfterFunc(masksForDrafts, func() { close(over) }).Stop()
	if e.opts.Drafter != nil {
		for _, a := range all {
			a.guess = e.guess(a.run, a.most, over)
		}
	}
	e.draftByModel(all, over)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range all {
		e.sched.guess(a.run.id, a.guess)
	}
}

// guess returns a draft of at most so many tokens that follow the last one of a request. It
// waits for the request's mask until over is closed.
func (e *Engine) guess(r *run, most int, over <-chan time.Time) drafts.Guess {
	if r.drafter == nil {
		e.beginDrafts(r)
	}
	select {
	case texts := <-r.related:
		for _, t := range texts {
			r.drafter.Beside(t.Source, t.Tokens)
		}
		r.related = nil
	default:
	}
	r.drafter.Add(r.fresh...)
	r.fresh = r.fresh[:0]
	if most <= 0 {
		return drafts.Guess{}
	}
	g := r.drafter.Draft(most)
	g.Tokens = g.Tokens[:min(len(g.Tokens), most)]
	return r.mask.improve(g, most, over)
}

// improve returns what a constraint makes of a draft: what it forces, unless the draft says
// the same and more, and no draft that it does not allow. It waits for the mask until over is
// closed, because a draft that is refused costs more.
func (m *mask) improve(g drafts.Guess, most int, over <-chan time.Time) drafts.Guess {
	if m.constraint == nil || m.late() && !m.wait(over) {
		return g
	}
	forced := m.forced[:min(len(m.forced), most)]
	switch same := commonPrefix(g.Tokens, forced); {
	case same < len(forced):
		return drafts.Guess{Tokens: slices.Clone(forced), Source: drafts.Grammar, Match: forcedMatch}
	case len(g.Tokens) > 0 && !m.allows(g.Tokens[0]):
		return drafts.Guess{}
	}
	return g
}

const (
	// masksForDrafts is how long the drafts of a step, all sequences together, wait for the
	// masks that they are checked by.
	masksForDrafts = 500 * time.Microsecond
	// forcedMatch is the match of texts that forced tokens are taken to be as good as, before
	// their own outcomes are known.
	forcedMatch = 20
)

// beginDrafts gives a request its drafter, with the texts that its answer may repeat.
func (e *Engine) beginDrafts(r *run) {
	r.drafter = e.opts.Drafter(&r.req)
	r.drafter.Add(r.req.Prompt...)
	e.mu.Lock()
	texts := e.sched.groupTexts(r.id)
	e.mu.Unlock()
	for _, ids := range texts {
		r.drafter.Beside(drafts.Group, ids)
	}
	if related := r.req.Related; related != nil {
		r.req.Related = nil
		found := make(chan []RelatedText, 1)
		r.related = found
		go func() { found <- related(r.ctx) }()
	}
}

const (
	// mostGroupTexts is how many entries of the prefix cache a request takes drafts from.
	mostGroupTexts = 2
	// mostGroupTokens bounds the tokens of each, from its end.
	mostGroupTokens = 1 << 15
)

// groupTexts returns what the last ended requests of a request's cache group have said
// beyond what they have in common with its prompt. Other scopes are left out: the time of
// an answer would tell what they have said.
func (s *scheduler) groupTexts(id requestID) (texts [][]int32) {
	t := s.find(id)
	if t == nil || t.hints.group == "" {
		return nil
	}
	for _, k := range slices.Backward(s.prefixCache) {
		if k.scope != t.scope || k.hints.group != t.hints.group || len(texts) == mostGroupTexts {
			continue
		}
		own := k.tokens[commonPrefix(k.tokens, t.prompt):]
		texts = append(texts, slices.Clone(own[max(0, len(own)-mostGroupTokens):]))
	}
	return texts
}

// outcome is a token of an answer, as run.advance returns it.
type outcome struct {
	id  int32
	ev  Event
	err error
}

// joined returns several tokens of an answer as the last of them, with an event that has
// what all of them add. Events before an error are sent before it.
func joined(r *run, out []outcome) outcome {
	last := out[len(out)-1]
	if last.err != nil {
		out = out[:len(out)-1]
	}
	if len(out) == 0 {
		return last
	}
	all := bufferedEvent{Event: out[0].ev}
	for _, o := range out[1:] {
		all.merge(o.ev)
	}
	if last.err != nil {
		r.send(all.joined())
		return last
	}
	last.ev = all.joined()
	return last
}

// verified is what the rows of a part with drafts gave.
type verified struct {
	part    int // its index
	run     *run
	rows    [][]float32
	out     []outcome // none: its first row is sampled like any other, later
	kept    int
	refuted bool
}

// verify samples the tokens of the parts with drafts, and sets which of their tokens are
// kept. Spoiled and cancelled requests keep what they would without drafts.
func (e *Engine) verify(rows [][]float32, spoiled map[requestID]error, mem []scratch) map[requestID][]outcome {
	var all []*verified
	e.mu.Lock()
	wait := grace(e.opts.Clock().Sub(e.lastProgress))
	first := 0
	for i, p := range e.sched.parts {
		if p.drafts() > 0 {
			v := &verified{part: i, run: e.runs[p.task.id], rows: rows[first : first+p.rows], kept: 1}
			if spoiled[p.task.id] != nil || p.task.cancelled {
				v.run = nil
			}
			all = append(all, v)
		}
		first += p.rows
	}
	e.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	sideBySide(len(all), len(mem), func(i, worker int) {
		v := all[i]
		v.verify(e, e.sched.parts[v.part].tokens, wait, &mem[worker])
	})
	out := map[requestID][]outcome{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range all {
		p := &e.sched.parts[v.part]
		p.kept, p.refuted = v.kept, v.refuted
		if p.task.guess.Source == drafts.Prediction && v.run != nil {
			v.count(p.drafts())
		}
		if len(v.out) > 0 {
			out[v.run.id] = v.out
		}
	}
	return out
}

// verify samples row by row as long as the drafts among tokens are what was sampled. A
// mask that is late ends it, after a short wait, because other requests would wait too. A
// row that is not finite is left to the next step, which fails as it would without drafts.
func (v *verified) verify(e *Engine, tokens []int32, wait time.Duration, mem *scratch) {
	if v.run == nil {
		return
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for i, row := range v.rows {
		row = row[:e.size]
		if i > 0 && firstBad(row) >= 0 || !v.run.mask.wait(over.C) {
			return
		}
		id, ev, err := v.run.advance(e, row, mem)
		v.out = append(v.out, outcome{id, ev, err})
		v.kept = i + 1
		if err != nil || ev.Finish != FinishNone || v.kept == len(tokens) {
			return
		}
		if tokens[v.kept] != id {
			v.refuted = true
			return
		}
	}
}

// count adds what became of so many drafts from a prediction to the usage of its request.
func (v *verified) count(run int) {
	u := &v.run.usage
	u.Accepted += v.kept - 1
	u.Rejected += run - (v.kept - 1)
	if n := len(v.out); n > 0 {
		v.out[n-1].ev.Usage = *u
	}
}

// kept returns the step in flight without the tokens that are not kept.
func (e *Engine) kept(step model.Step) (model.Step, error) {
	kept, whole := make([]int, len(step.Entries)), true
	for i, p := range e.sched.parts {
		kept[i] = p.kept
		whole = whole && p.kept == p.n
	}
	if whole {
		return step, nil
	}
	return step.Truncated(kept)
}
