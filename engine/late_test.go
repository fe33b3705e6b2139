package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
)

// gatedConstraint allows half of the ids, depending on the tokens so far. Its masks and
// tokens wait for a gate if their place has one.
type gatedConstraint struct {
	gates  map[int]chan struct{} // by the number of tokens before
	inside chan int              // receives when a mask waits; nil: no one asks
	place  int
	hash   int32
	ended  chan struct{} // closed when a mask ends with its context
	once   sync.Once
}

func (c *gatedConstraint) Mask(ctx context.Context, words []uint64) error {
	if gate := c.gates[c.place]; gate != nil {
		if c.inside != nil {
			c.inside <- c.place
		}
		select {
		case <-gate:
		case <-ctx.Done():
			c.once.Do(func() { close(c.ended) })
			return ctx.Err()
		}
	}
	for id := range int32(len(words) * 64) {
		if (id*31+c.hash)%2 == 0 {
			words[id/64] |= 1 << (id % 64)
		}
	}
	return nil
}

func (c *gatedConstraint) Accept(id int32) error {
	c.place++
	c.hash = c.hash*17 + id
	return nil
}

// A row with a late mask leaves the steps, and the others get all their tokens meanwhile.
// It comes back with the tokens that it has when no mask is late.
func TestLateMasks(t *testing.T) {
	request := func(c Constraint, seed uint64) Request {
		return Request{Prompt: []int32{5, 6, 7}, MaxTokens: 12, Constraint: c, IgnoreEOS: true, Logprobs: true,
			Sampling: Sampling{Temperature: 1, TopP: 0.9, PresencePenalty: 0.3, Seed: &seed}}
	}
	e := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{})
	want := ask(t, e, request(&gatedConstraint{}, 3))
	require.Len(t, want.Tokens, 12)
	free := ask(t, e, request(nil, 4))

	c := &gatedConstraint{inside: make(chan int), gates: map[int]chan struct{}{}}
	for _, place := range []int{0, 1, 5, 11} {
		c.gates[place] = make(chan struct{})
	}
	s := submit(t, e, request(c, 3))
	for range len(c.gates) {
		place := <-c.inside
		before := e.Stats().Tokens
		require.Equal(t, free.Tokens, ask(t, e, request(nil, 4)).Tokens, "it does not wait for the mask of place %d", place)
		require.GreaterOrEqual(t, e.Stats().Tokens-before, uint64(12))
		close(c.gates[place])
	}
	got := finish(t, s)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Text, got.Text)
}

// Whichever masks are late, beside whatever requests, the tokens are the same.
func TestLateMasksChangeNothing(t *testing.T) {
	e := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{}), Options{MaxActive: 5})
	request := func(i int, c Constraint) Request {
		seed := uint64(i)
		return Request{Prompt: []int32{5, int32(i)}, MaxTokens: 8, Constraint: c, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: &seed}}
	}
	const requests = 12
	var want [requests]answer
	for i := range want {
		want[i] = ask(t, e, request(i, &gatedConstraint{}))
	}
	r := rand.New(rand.NewPCG(1, 2))
	var gates []chan struct{}
	var streams []*Stream
	for i := range want {
		c := &gatedConstraint{gates: map[int]chan struct{}{}}
		for place := range 8 {
			if r.IntN(2) == 0 {
				c.gates[place] = make(chan struct{})
				gates = append(gates, c.gates[place])
			}
		}
		streams = append(streams, submit(t, e, request(i, c)))
	}
	r.Shuffle(len(gates), func(i, j int) { gates[i], gates[j] = gates[j], gates[i] })
	go func() {
		for _, gate := range gates {
			close(gate)
		}
	}()
	for i, s := range streams {
		require.Equal(t, want[i].ids(), finish(t, s).ids(), "request %d", i)
	}
}

// The mask of a request that has ended is given up, wherever it waits.
func TestLateMasksEnd(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
	e := start(t, m, Options{})
	for _, place := range []int{0, 3} {
		c := &gatedConstraint{inside: make(chan int), gates: map[int]chan struct{}{place: make(chan struct{})}, ended: make(chan struct{})}
		s := submit(t, e, Request{Prompt: []int32{5, 6}, MaxTokens: 9, Constraint: c, IgnoreEOS: true})
		<-c.inside
		s.Close()
		<-c.ended
	}
	ask(t, e, Request{Prompt: []int32{5, 6}, MaxTokens: 3, IgnoreEOS: true}) // the engine works as before
}
