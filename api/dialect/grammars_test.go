package dialect

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/constraint"
	"ringmaster/engine"
)

// TestGrammarsTakeTurns: at most two grammars are made at once. A request leaves when its
// client does, both while it waits for its turn and while its grammar is being made.
func TestGrammarsTakeTurns(t *testing.T) {
	g := NewGrammars(apitest.Tokenizer{}, DefaultGrammars)
	turns := cap(g.making)
	require.LessOrEqual(t, turns, 2)
	var inside atomic.Int32
	entered, proceed := make(chan struct{}), make(chan struct{})
	ask := func(ctx context.Context, i int) chan *Error {
		done := make(chan *Error, 1)
		form := &Form{key: fmt.Sprint(i), make: func(b *constraint.Budget) (*constraint.Expr, error) {
			if n := inside.Add(1); int(n) > turns {
				t.Errorf("%d are made at once", n)
			}
			defer inside.Add(-1)
			entered <- struct{}{}
			<-proceed
			for b.Spend(1) && ctx.Done() != nil { // it would never end
			}
			return constraint.Literal("a"), b.Err()
		}}
		requests := make([]engine.Request, 1)
		go func() { done <- g.Constrain(ctx, requests, form) }()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	var making, waiting []chan *Error
	for i := range turns {
		making = append(making, ask(ctx, i))
		<-entered
	}
	leaving, leave := context.WithCancel(t.Context())
	for i := range 20 {
		waiting = append(waiting, ask(leaving, 100+i))
	}
	leave()
	for _, done := range waiting {
		require.Equal(t, ErrCancelled, <-done, "it leaves while others are made")
	}
	cancel()
	close(proceed)
	for _, done := range making {
		require.Equal(t, ErrCancelled, <-done, "its budget ends with its request")
	}
	require.Empty(t, g.making)
	last := ask(context.Background(), 200)
	<-entered
	require.Nil(t, <-last)
}

// TestOneGrammarForAllAnswers: the answers to one request share a grammar, which is made once
// however little is kept.
func TestOneGrammarForAllAnswers(t *testing.T) {
	g := NewGrammars(apitest.Tokenizer{}, 0)
	made := 0
	form := &Form{key: "k", make: func(*constraint.Budget) (*constraint.Expr, error) {
		made++
		return constraint.Literal("a"), nil
	}}
	requests := make([]engine.Request, 5)
	require.Nil(t, g.Constrain(t.Context(), requests, form))
	require.Equal(t, 1, made)
	for i := range requests {
		require.NotNil(t, requests[i].Constraint)
	}
	used, _ := g.Bytes()
	require.Zero(t, used)
}
