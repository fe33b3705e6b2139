// Package run is the one generation loop of the API: a Job goes in, Events come out. It
// knows neither JSON nor HTTP; a dialect makes the job of a request and renders the
// events.
//
// Runner.Start queues a job, Run.Each hands each event to a function, and Run.Close stops
// what is left.
package run

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Stream is one completion in progress.
type Stream interface {
	// Next waits for the next event. It returns io.EOF after the event that
	// carries the finish reason.
	Next(ctx context.Context) (engine.Event, error)
	// Await says, after the last event, that the client will send results of functions.
	Await()
	// Close stops the generation. It may be called at any time and more than
	// once.
	Close()
	// Times returns when the completion passed from one stage to the next.
	Times() engine.Times
}

// Engine runs jobs.
type Engine interface {
	// SubmitAll queues all requests, or none of them. Its errors are those of package
	// engine.
	SubmitAll(ctx context.Context, requests []engine.Request) ([]Stream, error)
}

// Vocabulary is the part of a vocabulary that the loop uses.
type Vocabulary interface {
	// IsEnd reports whether the token ends a completion.
	IsEnd(id int32) bool
}

// Observer counts what runs produce. Its methods may be called from several runs
// at once.
type Observer interface {
	FirstToken(seconds float64) // since the job was submitted
	Token(seconds float64)      // since the previous token of the answer
	Answer(engine.Usage)        // of an answer that has ended or was given up
}

// Runner starts jobs.
type Runner struct {
	Engine     Engine
	Vocabulary Vocabulary
	Observer   Observer
	Replays    *Replays // remembers answers with calls; nil: none
	Now        func() time.Time
}

// Job is the work that one request asks for.
type Job struct {
	// Requests has one element for each answer, all of one CacheScope.
	Requests []engine.Request
	// Parser makes the parser that splits an answer into reasoning, text and calls; nil:
	// all is text.
	Parser func() *chat.Parser
	// CallID makes the id of a call; it must be unguessable.
	CallID func() string
	// AnswerID is the id by which the client may send back an answer without calls, for a
	// job with one answer; "": it has none.
	AnswerID string
}

// FinishCalls is the finish reason of an answer that ended with calls.
const FinishCalls engine.FinishReason = "tool_calls"

// Event is what the next step adds to one of the answers.
type Event struct {
	Answer    int    // index of the job's request
	Reasoning string // precedes Text if an event has both
	Text      string
	// Calls are tool calls, or parts of them, in their order.
	Calls []Call
	// Tokens are the event's tokens with their log-probabilities, without the end token
	// that finished the answer, because that is not a part of it.
	Tokens []Token
	// Prompt is engine.Event.Prompt.
	Prompt   []engine.Token
	Finish   engine.FinishReason
	StopText string          // the stop string that ended the answer, if one did
	Progress engine.Progress // of the prefill
	Usage    Usage           // of the answer so far

	parsed bool // Text comes from the parser, not from the engine
}

// Empty reports whether the event adds nothing but progress.
func (e *Event) Empty() bool {
	return e.Reasoning == "" && e.Text == "" && len(e.Calls) == 0 && len(e.Tokens) == 0 && len(e.Prompt) == 0 && e.Finish == engine.FinishNone
}

// Token is a token of an answer.
type Token struct {
	engine.Token
	Reasoning bool // a part of the reasoning, or the marker that ends it
}

// Call is a part of a tool call: its beginning, more of its arguments, its end, or
// several of these. The beginning of a call comes with its first argument, or with its
// end if it has none.
type Call struct {
	Index     int    // of the call in its answer
	ID, Name  string // at the beginning only
	Begun     bool
	Arguments string // JSON text to append
	Ended     bool
}

// Usage is the tokens and the times of one answer.
type Usage struct {
	engine.Usage
	Reasoning int          // of Completion
	Times     engine.Times // zero before its last event
}

// Run is a started job: its answers run concurrently. A goroutine for each answer
// forwards its events; Close stops them all.
type Run struct {
	runner  *Runner
	id      string // Job.AnswerID
	scope   string // scope of the prefix cache, and of Replays
	streams []Stream
	answers []*answer
	updates chan update
	cancel  context.CancelFunc
	pumps   sync.WaitGroup
	open    int // answers that have not finished
}

// answer is the state of one answer.
type answer struct {
	parser *chat.Parser // nil: all is text
	// tokens parses the same answer by its tokens. These run ahead of the text when the
	// engine holds text back because it may become a stop string.
	tokens             *chat.Parser
	callID             func() string
	usage              Usage
	last               time.Time // time of its last token, or of its submission
	begun              bool      // its first token has arrived
	reasoning, content strings.Builder
	calls              []chat.Call // so far
	ended              int         // of them
	shown              int         // of them
	held               bool        // the last of them is not shown yet
	thought            []int32     // its reasoning tokens, with the marker that ends them
	sampled            []int32     // its tokens after that
	mixed              bool        // one token is part of both
	finish             engine.FinishReason
}

// update is an event of one of the answers.
type update struct {
	answer int
	event  engine.Event
	err    error // io.EOF after the last event
}

// Start queues all requests of a job, or none if one of them is rejected. The caller must
// call Close.
func (r *Runner) Start(ctx context.Context, job *Job) (*Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	run := &Run{runner: r, id: job.AnswerID, scope: job.Requests[0].CacheScope, updates: make(chan update), cancel: cancel}
	streams, err := r.Engine.SubmitAll(ctx, job.Requests)
	if err != nil {
		cancel()
		return nil, err
	}
	run.streams, run.open = streams, len(streams)
	for i, stream := range streams {
		a := &answer{last: r.Now()}
		if job.Parser != nil {
			a.parser, a.tokens, a.callID = job.Parser(), job.Parser(), job.CallID
		}
		run.answers = append(run.answers, a)
		run.pumps.Go(func() { run.pump(ctx, i, stream) })
	}
	return run, nil
}

// pump forwards the events of one stream to updates until it ends or ctx does.
func (r *Run) pump(ctx context.Context, index int, stream Stream) {
	for {
		event, err := stream.Next(ctx)
		select {
		case r.updates <- update{index, event, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Each calls handle for every event of every answer as it comes, and tick for every tick
// in between (tick and ticks may be nil). It returns nil when all answers have finished,
// otherwise at once the first error of an answer, of a function or of ctx.
func (r *Run) Each(ctx context.Context, handle func(*Event) error, ticks <-chan time.Time, tick func() error) error {
	for r.open > 0 {
		var err error
		select {
		case u := <-r.updates:
			switch {
			case errors.Is(u.err, io.EOF):
				r.open--
				continue
			case u.err != nil:
				return u.err
			}
			r.observe(u)
			e := r.translate(u)
			err = handle(&e)
		case <-ticks:
			err = tick()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// translate converts an event of the engine.
func (r *Run) translate(u update) Event {
	e := Event{Answer: u.answer, Text: u.event.Text, Prompt: u.event.Prompt, Finish: u.event.Finish, StopText: u.event.StopText, Progress: u.event.Progress}
	a := r.answers[u.answer]
	if a.parser != nil {
		d := a.parser.Push(u.event.Text)
		e.add(a, &d)
		if e.Finish != engine.FinishNone {
			d = a.parser.Flush()
			e.add(a, &d)
		}
	}
	for i, t := range u.event.Tokens {
		end := r.end(&u.event, i)
		inside := a.tokens != nil && a.tokens.Reasoning()
		if a.tokens != nil && !end {
			a.tokens.Push(string(t.Bytes))
			// An answer cannot be replayed if one of its tokens is also part of the
			// marker.
			a.mixed = a.mixed || inside && !a.tokens.Reasoning() && !strings.HasSuffix(string(t.Bytes), ">")
			if !inside && a.tokens.Reasoning() { // the marker that begins the reasoning belongs to neither
				a.sampled = nil
				e.Tokens = append(e.Tokens, Token{t, inside})
				continue
			}
		}
		if inside {
			a.usage.Reasoning++
		}
		if !end {
			e.Tokens = append(e.Tokens, Token{t, inside})
			switch {
			case inside:
				a.thought = append(a.thought, t.ID)
			case a.parser != nil:
				a.sampled = append(a.sampled, t.ID)
			}
		}
	}
	if e.Finish == engine.FinishStop && e.StopText == "" {
		if a.ended > 0 {
			e.Finish = FinishCalls
			r.streams[u.answer].Await()
		}
		r.remember(a)
	}
	if e.Finish != engine.FinishNone {
		a.usage.Times = r.streams[u.answer].Times()
		if a.usage.Times.Ended.IsZero() { // the event comes just before the end of its stream
			a.usage.Times.Ended = r.runner.Now()
		}
	}
	e.Usage, a.finish = a.usage, e.Finish
	return e
}

// remember keeps an answer that ended by itself, if a client can refer to it.
func (r *Run) remember(a *answer) {
	p := &replay{scope: r.scope, id: r.id, reasoning: a.reasoning.String(), content: a.content.String(), calls: a.calls, thought: a.thought, tokens: a.sampled}
	if len(a.calls) > 0 {
		p.id = a.calls[0].ID
	}
	if p.id != "" && a.ended == len(a.calls) && !a.mixed && r.runner.Replays != nil {
		r.runner.Replays.remember(p)
	}
}

// add sets the event's text to what a parser made of the answer's text.
func (e *Event) add(a *answer, d *chat.Delta) {
	if !e.parsed {
		e.parsed, e.Text = true, ""
	}
	e.Reasoning += d.Reasoning
	e.Text += d.Text
	a.reasoning.WriteString(d.Reasoning)
	a.content.WriteString(d.Text)
	for i := range d.Calls {
		if call, ok := a.call(&d.Calls[i]); ok {
			e.Calls = append(e.Calls, call)
		}
	}
}

// call follows the parser and returns the part that may be shown. It holds a call back
// until that has an argument or its end, because clients run a call that was cut off
// earlier as if it had no arguments.
func (a *answer) call(c *chat.CallDelta) (out Call, ok bool) {
	begun := c.Begun || a.held
	if c.Begun {
		a.calls = append(a.calls, chat.Call{ID: a.callID(), Name: c.Name})
	}
	last := &a.calls[len(a.calls)-1]
	last.Arguments += c.Arguments
	if c.Ended {
		a.ended++
	}
	if a.held = begun && c.Arguments == "" && !c.Ended; a.held {
		return Call{}, false
	}
	out = Call{Begun: begun, Arguments: c.Arguments, Ended: c.Ended}
	if begun {
		out.ID, out.Name = last.ID, last.Name
		a.shown++
	}
	out.Index = a.shown - 1
	return out, true
}

// end reports whether token i of an event is the end token that finished the
// answer.
func (r *Run) end(e *engine.Event, i int) bool {
	return i == len(e.Tokens)-1 && e.Finish == engine.FinishStop && e.StopText == "" && r.runner.Vocabulary.IsEnd(e.Tokens[i].ID)
}

// observe keeps the usage and records token latencies.
func (r *Run) observe(u update) {
	a := r.answers[u.answer]
	if u.event.Usage != (engine.Usage{}) {
		a.usage.Usage = u.event.Usage
	}
	tokens := len(u.event.Tokens)
	if tokens == 0 {
		return
	}
	now := r.runner.Now()
	seconds := now.Sub(a.last).Seconds()
	if !a.begun {
		a.begun = true
		r.runner.Observer.FirstToken(seconds)
		tokens-- // the rest of the event arrived with the first token, in no extra time
		seconds = 0
	}
	for range tokens {
		r.runner.Observer.Token(seconds / float64(tokens))
	}
	a.last = now
}

// Usage returns the use of each answer so far. During Each only the functions that Each
// calls may call it.
func (r *Run) Usage() []Usage {
	out := make([]Usage, len(r.answers))
	for i, a := range r.answers {
		out[i] = a.usage
	}
	return out
}

// Outcome says how an answer ended.
type Outcome struct {
	Usage  Usage
	Times  engine.Times
	Finish engine.FinishReason // FinishNone: it was given up, or failed
	Calls  int                 // tool calls that are complete
}

// Outcomes returns the outcomes of the answers, after Close.
func (r *Run) Outcomes() []Outcome {
	out := make([]Outcome, len(r.answers))
	for i, a := range r.answers {
		out[i] = Outcome{Usage: a.usage, Times: r.streams[i].Times(), Finish: a.finish, Calls: a.ended}
	}
	return out
}

// Close stops the unfinished answers, waits for their goroutines and counts the
// tokens.
func (r *Run) Close() {
	r.cancel()
	for _, s := range r.streams {
		s.Close()
	}
	r.pumps.Wait()
	for _, a := range r.answers {
		r.runner.Observer.Answer(a.usage.Usage)
	}
}
