package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"ringmaster/engine"
)

// choices runs all answers of one request concurrently. A goroutine for each
// forwards its events; close stops them all.
type choices struct {
	server  *server
	streams []Stream
	updates chan update
	cancel  context.CancelFunc
	pumps   sync.WaitGroup

	open     int // choices that have not finished
	usage    []engine.Usage
	lastTime []time.Time // of each choice: its last token, or its submission
	hasToken []bool      // of each choice: whether its first token has arrived
}

// update is an event of one of the choices, or a tick of the clock if index is
// negative.
type update struct {
	index int
	event engine.Event
	err   error // io.EOF after the last event
}

// submit queues all the requests, or none if one of them is rejected.
func (s *server) submit(ctx context.Context, requests []engine.Request) (*choices, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &choices{
		server: s, updates: make(chan update), cancel: cancel,
		usage: make([]engine.Usage, len(requests)), lastTime: make([]time.Time, len(requests)),
		hasToken: make([]bool, len(requests)),
	}
	var err error
	if c.streams, err = s.Engine.SubmitAll(ctx, requests); err != nil {
		c.close()
		return nil, err
	}
	for i := range c.lastTime {
		c.lastTime[i] = s.Clock.Now()
	}
	c.open = len(c.streams)
	for i, stream := range c.streams {
		c.pumps.Go(func() { c.pump(ctx, i, stream) })
	}
	return c, nil
}

// pump forwards the events of one stream to updates until it ends or ctx does.
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
// ticks may be nil). It returns io.EOF when all choices have finished, and the
// first error of a choice or of ctx as soon as it occurs.
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
			c.observe(u)
			return u, nil
		case <-ticks:
			return update{index: -1}, nil
		case <-ctx.Done():
			return update{}, context.Cause(ctx)
		}
	}
	return update{}, io.EOF
}

// observe keeps the usage and records token latencies.
func (c *choices) observe(u update) {
	if u.event.Usage != (engine.Usage{}) {
		c.usage[u.index] = u.event.Usage
	}
	tokens := len(u.event.Tokens)
	if tokens == 0 {
		return
	}
	now := c.server.Clock.Now()
	seconds := now.Sub(c.lastTime[u.index]).Seconds()
	m := c.server.metrics
	if !c.hasToken[u.index] {
		c.hasToken[u.index] = true
		m.firstToken.Observe(seconds)
		tokens-- // the rest of the event arrived with the first token, at no extra time
		seconds = 0
	}
	for range tokens {
		m.perToken.Observe(seconds / float64(tokens))
	}
	c.lastTime[u.index] = now
}

// close stops the unfinished choices, waits for their goroutines and counts the
// tokens.
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

// usage is OpenAI's usage object.
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

// add adds the answers to one prompt. The prompt is counted once, however many
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
