package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"ringmaster/engine"
)

// choices are the answers of one request, all made at the same time. Each has
// a goroutine that hands its events over; close ends them all.
type choices struct {
	server  *server
	streams []Stream
	updates chan update
	cancel  context.CancelFunc
	pumps   sync.WaitGroup

	open   int // answers that have not come to their end
	usage  []engine.Usage
	since  []time.Time // when the last token of each came, or the submit
	spoken []bool      // whether a token of each has come
}

// update is something that happened to one of the choices, or, with an index
// below 0, a tick of the clock.
type update struct {
	index int
	event engine.Event
	err   error // io.EOF after the last event
}

// submit queues all requests or none of them.
func (s *server) submit(ctx context.Context, requests []engine.Request) (*choices, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &choices{
		server: s, updates: make(chan update), cancel: cancel,
		usage: make([]engine.Usage, len(requests)), since: make([]time.Time, len(requests)),
		spoken: make([]bool, len(requests)),
	}
	for i, r := range requests {
		stream, err := s.Engine.Submit(ctx, r)
		if err != nil {
			c.close()
			return nil, err
		}
		c.streams = append(c.streams, stream)
		c.since[i] = s.Clock.Now()
	}
	c.open = len(c.streams)
	for i, stream := range c.streams {
		c.pumps.Go(func() { c.pump(ctx, i, stream) })
	}
	return c, nil
}

func (c *choices) pump(ctx context.Context, index int, stream Stream) {
	for {
		event, err := stream.Next(ctx)
		select {
		case c.updates <- update{index, event, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// next waits for an event of any choice, or for a tick of the clock (index -1;
// ticks may be nil). It gives io.EOF when every choice has come to its end,
// and the error of a choice, or of ctx, as soon as there is one.
func (c *choices) next(ctx context.Context, ticks <-chan time.Time) (update, error) {
	for c.open > 0 {
		select {
		case u := <-c.updates:
			if errors.Is(u.err, io.EOF) {
				c.open--
				continue
			}
			if u.err != nil {
				return u, u.err
			}
			c.note(u)
			return u, nil
		case <-ticks:
			return update{index: -1}, nil
		case <-ctx.Done():
			return update{}, context.Cause(ctx)
		}
	}
	return update{}, io.EOF
}

// note keeps the usage and measures how long tokens take.
func (c *choices) note(u update) {
	if u.event.Usage != (engine.Usage{}) {
		c.usage[u.index] = u.event.Usage
	}
	tokens := len(u.event.Tokens)
	if tokens == 0 {
		return
	}
	now := c.server.Clock.Now()
	seconds := now.Sub(c.since[u.index]).Seconds()
	m := c.server.metrics
	if !c.spoken[u.index] {
		c.spoken[u.index] = true
		m.firstToken.Observe(seconds)
		tokens-- // the others came with it: no time passed between them
		seconds = 0
	}
	for range tokens {
		m.perToken.Observe(seconds / float64(tokens))
	}
	c.since[u.index] = now
}

// close ends what is still under way and waits for the goroutines.
func (c *choices) close() {
	c.cancel()
	for _, s := range c.streams {
		s.Close()
	}
	c.pumps.Wait()
	for _, u := range c.usage {
		c.server.metrics.addTokens(u)
	}
}

// usage is how OpenAI counts tokens.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// add counts the answers to one prompt. The prompt counts once, however many
// choices it has.
func (u *usage) add(answers []engine.Usage) {
	for i, a := range answers {
		if i == 0 {
			u.PromptTokens += a.Prompt
			u.PromptDetails.CachedTokens += a.Cached
		}
		u.CompletionTokens += a.Completion
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
