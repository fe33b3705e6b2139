package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// run is the state of one request. After Submit only the loop uses it,
// except for stream, and for unwatch, which others call with the engine's lock.
type run struct {
	id      requestID
	req     Request
	stream  *Stream
	unwatch func() // ends the watch on Submit's context, and the computation of masks

	sampler   *sampler
	text      *textFilter
	maxTokens int // of the answer: the smaller of the request's limit and the room in the context
	usage     Usage
	prompt    []Token // with PromptLogprobs, until sent
	mask      mask
	row       []float32 // [vocab] logits that wait for a late mask

	started bool // its first step has run

	ctx     context.Context    // of Submit
	drafter Drafter            // nil before the first draft
	related chan []RelatedText // what Request.Related finds; nil: nothing is expected
	fresh   []int32            // tokens of the answer that the drafter does not have yet
}

func (e *Engine) newRun(r Request) *run {
	r = r.clone()
	seed := e.opts.Random()
	if r.Sampling.Seed != nil {
		seed = *r.Sampling.Seed
	}
	room := e.info.ContextLength - len(r.Prompt)
	if r.MaxTokens > 0 {
		room = min(room, r.MaxTokens)
	}
	run := &run{
		req: r, stream: newStream(e.opts.Clock), sampler: newSampler(r.Sampling, seed), text: newTextFilter(r.Stop),
		maxTokens: room, usage: Usage{Prompt: len(r.Prompt)}, mask: mask{constraint: r.Constraint},
	}
	return run
}

// logprobBytes is Go's memory for the log-probability of a token or of one alternative
// until it is sent, as values and as JSON.
const logprobBytes = 256

// logprobMemory returns the most bytes that the log-probabilities of a request take.
func (r *run) logprobMemory() int64 {
	tokens := 0
	if r.req.Logprobs {
		tokens += r.maxTokens
	}
	if r.req.PromptLogprobs {
		tokens += len(r.req.Prompt)
	}
	return int64(tokens) * int64(1+r.req.TopLogprobs) * logprobBytes
}

// atMost returns the length of the answer to reserve memory for: the request's limit, or
// one token if it sets none.
func (r *run) atMost() int {
	if r.req.MaxTokens == 0 {
		return 1
	}
	return r.maxTokens
}

// readPrompt turns the rows of logits [n][vocab] of the prompt tokens from position pos
// into log-probabilities; each row belongs to the next token.
func (r *run) readPrompt(e *Engine, pos int, rows [][]float32) {
	if pos == 0 {
		r.prompt = append(r.prompt, r.token(e, r.req.Prompt[0]))
	}
	for i, row := range rows {
		if next := pos + i + 1; next < len(r.req.Prompt) {
			r.prompt = append(r.prompt, withLogprobs(r.token(e, r.req.Prompt[next]), row, r.req.TopLogprobs, r.token, e))
		}
	}
}

// errNoToken is why an answer cannot continue.
var errNoToken = errors.New("no token of the vocabulary is allowed here")

// advance samples the next token from its row of logits [vocab] and returns the
// event for send. An event with a finish reason ends the answer, and so does an
// error. The mask must not be late.
func (r *run) advance(e *Engine, row []float32, mem *scratch) (id int32, ev Event, err error) {
	early := r.usage.Completion < r.req.MinTokens
	words, err := r.mask.take()
	if err != nil {
		return 0, Event{}, err
	}
	row = masked(row, words, mem)
	if r.mask.constraint != nil && math.IsInf(float64(row[largest(row, 1)[0]]), -1) {
		return 0, Event{}, fmt.Errorf("%w: after %d tokens: %w", ErrConstraint, r.usage.Completion, errNoToken)
	}
	banned := r.req.Banned
	if early {
		banned = append(slices.Clone(banned), e.ends...)
	}
	id = r.sampler.draw(row, excludable(row, banned), mem)
	r.usage.Completion++
	if e.opts.Drafter != nil && !r.req.NoDrafts {
		r.fresh = append(r.fresh, id)
	}

	ev = Event{Usage: r.usage, Prompt: r.prompt}
	r.prompt = nil
	var out released
	end := e.vocab.IsEnd(id) && !r.req.IgnoreEOS
	if end {
		out = r.text.flush()
		ev.Finish = FinishStop
	} else {
		t := r.token(e, id)
		watch := r.req.StopsIn == nil || r.req.StopsIn(t.Bytes)
		if r.req.Logprobs {
			t = withLogprobs(t, row, r.req.TopLogprobs, r.token, e)
		}
		out = r.text.add(t, watch && !early)
		switch {
		case out.stopped:
			ev.Finish, ev.StopText = FinishStop, out.stop
		case r.usage.Completion >= r.maxTokens:
			rest := r.text.flush()
			out.text += rest.text
			out.tokens = append(out.tokens, rest.tokens...)
			ev.Finish = FinishLength
		}
	}
	ev.Text, ev.Tokens = out.text, out.tokens
	if ev.Finish == FinishNone {
		r.mask.accept(id)
	}
	return id, ev, nil
}

// send pushes the event of advance to the stream, unless it is empty.
func (r *run) send(ev Event) {
	switch {
	case ev.Finish != FinishNone:
		r.stream.finish(ev)
	case ev.Text != "" || len(ev.Tokens) > 0 || len(ev.Prompt) > 0:
		r.stream.push(ev)
	}
}
