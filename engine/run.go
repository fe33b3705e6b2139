package engine

import (
	"bytes"
)

// run is the state of one request. After Submit only the loop uses it, except for
// stream.
type run struct {
	id      requestID
	req     Request
	stream  *Stream
	unwatch func() bool // stops watching the context of Submit

	sampler   *sampler
	text      *textFilter
	maxTokens int // of the answer: the request's limit and the room in the context
	usage     Usage
	prompt    []Token // with PromptLogprobs, until sent
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
	return &run{
		req: r, stream: newStream(), sampler: newSampler(r.Sampling, seed), text: newTextFilter(r.Stop),
		maxTokens: room, usage: Usage{Prompt: len(r.Prompt)},
	}
}

// Bytes of Go's memory that log-probabilities take until they are sent: for a token
// and for each of its alternatives, as values and as JSON.
const logprobBytes = 256

// logprobMemory is what the log-probabilities of a request take at most, in bytes.
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

// atMost is how long the answer is for which memory is set aside: as long as the
// request allows, or one token if the request sets no limit.
func (r *run) atMost() int {
	if r.req.MaxTokens == 0 {
		return 1
	}
	return r.maxTokens
}

// token is an id with its bytes.
func (e *Engine) token(id int32) Token {
	return Token{ID: id, Bytes: bytes.Clone(e.vocab.Bytes(id))}
}

// readPrompt turns the rows of logits [n][vocab] of the prompt tokens from
// position pos into log-probabilities: each row is that of the next token.
func (r *run) readPrompt(e *Engine, pos int, rows [][]float32) {
	if pos == 0 {
		r.prompt = append(r.prompt, e.token(r.req.Prompt[0]))
	}
	for i, row := range rows {
		if next := pos + i + 1; next < len(r.req.Prompt) {
			r.prompt = append(r.prompt, withLogprobs(e.token(r.req.Prompt[next]), row, r.req.TopLogprobs, e.vocab))
		}
	}
}

// advance samples the next token from its row of logits [vocab] and returns the
// event for send. An event with a finish reason ends the answer.
func (r *run) advance(e *Engine, row []float32, mem *scratch) (id int32, ev Event) {
	early := r.usage.Completion < r.req.MinTokens
	var banned []int32
	if early {
		banned = e.ends
	}
	id = r.sampler.draw(row, banned, mem)
	r.usage.Completion++

	ev = Event{Usage: r.usage, Prompt: r.prompt}
	r.prompt = nil
	var out released
	if e.vocab.IsEnd(id) && !r.req.IgnoreEOS {
		out = r.text.flush()
		ev.Finish = FinishStop
	} else {
		t := e.token(id)
		if r.req.Logprobs {
			t = withLogprobs(t, row, r.req.TopLogprobs, e.vocab)
		}
		out = r.text.add(t, !early)
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
	return id, ev
}

// send puts the event of advance into the stream, unless it is empty.
func (r *run) send(ev Event) {
	switch {
	case ev.Finish != FinishNone:
		r.stream.finish(ev)
	case ev.Text != "" || len(ev.Tokens) > 0 || len(ev.Prompt) > 0:
		r.stream.push(ev)
	}
}
