package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
)

// onlyIDs allows a list of ids at each place; an error ends the answer.
type onlyIDs struct {
	allowed [][]int32
	place   int
	fails   error
	panics  bool
	slow    error
}

func (c *onlyIDs) Mask(_ context.Context, words []uint64) error {
	if c.panics {
		panic("secret")
	}
	if c.place < len(c.allowed) {
		for _, id := range c.allowed[c.place] {
			words[id/64] |= 1 << (id % 64)
		}
	}
	return c.slow
}

func (c *onlyIDs) Accept(int32) error {
	c.place++
	return c.fails
}

func TestConstraint(t *testing.T) {
	e := start(t, enginetest.Script("some words"), Options{})
	ask := func(c *onlyIDs, change func(*Request)) (answer, error) {
		r := Request{Prompt: []int32{5, 6}, MaxTokens: 4, Constraint: c, Logprobs: true, TopLogprobs: 3}
		if change != nil {
			change(&r)
		}
		s := submit(t, e, r)
		return collect(testContext(t), s)
	}
	got, err := ask(&onlyIDs{allowed: [][]int32{{7}, {8, 9}, {10}, {11}}}, nil)
	require.NoError(t, err)
	ids := got.ids()
	require.Equal(t, int32(7), ids[0])
	require.Contains(t, []int32{8, 9}, ids[1])
	require.Equal(t, []int32{10, 11}, ids[2:])
	require.Zero(t, got.Tokens[0].Logprob, "of the only token that is allowed")
	require.Len(t, got.Tokens[0].Top, 1)
	require.Len(t, got.Tokens[1].Top, 2)

	_, err = ask(&onlyIDs{allowed: [][]int32{{7}}}, nil)
	require.ErrorIs(t, err, ErrConstraint, "no token is left")
	_, err = ask(&onlyIDs{allowed: [][]int32{{7}, {8}}, fails: errors.New("no")}, nil)
	require.ErrorIs(t, err, ErrConstraint)
	_, err = ask(&onlyIDs{allowed: [][]int32{{7}}, slow: errors.New("slow")}, nil)
	require.ErrorIs(t, err, ErrConstraint)
	_, err = ask(&onlyIDs{panics: true}, nil)
	require.ErrorContains(t, err, "panicked")
	require.NotErrorIs(t, err, ErrConstraint, "it is not the client's fault")
	require.NotContains(t, err.Error(), "secret")

	// Banned ids are not sampled, unless nothing else is left.
	got, err = ask(&onlyIDs{allowed: [][]int32{{7, 8}, {8}, {7, 8}, {7, 8}}}, func(r *Request) { r.Banned = []int32{8} })
	require.NoError(t, err)
	require.Equal(t, []int32{7, 8, 7, 7}, got.ids())

	_, err = e.Submit(testContext(t), Request{Prompt: []int32{5}, Banned: []int32{1 << 20}})
	require.ErrorIs(t, err, ErrInvalid)
}
