package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
)

// TestSubmitAll checks that places are taken for all requests or for none, and that a
// request for more places than can ever exist is a distinct error.
func TestSubmitAll(t *testing.T) {
	m, gate := gated(enginetest.Options{})
	e := start(t, m, Options{MaxActive: 2, QueueLength: 2})
	ctx := testContext(t)
	requests := func(n int) []Request { return slices.Repeat([]Request{{Prompt: encode("x"), MaxTokens: 1}}, n) }
	waiting := func() int { s := e.Stats(); return s.Queued + s.Active }

	_, err := e.SubmitAll(ctx, requests(5))
	require.ErrorIs(t, err, ErrTooMany, "five requests for four places")
	streams, err := e.SubmitAll(ctx, requests(2))
	require.NoError(t, err)
	if _, err := e.SubmitAll(ctx, requests(3)); !errors.Is(err, ErrBusy) || waiting() != 2 {
		t.Fatalf("three requests for two free places: %v, %d have places", err, waiting())
	}
	if _, err := e.SubmitAll(ctx, append(requests(1), Request{})); !errors.Is(err, ErrInvalid) || waiting() != 2 {
		t.Fatalf("the second is invalid: %v, %d have places", err, waiting())
	}
	more, err := e.SubmitAll(ctx, requests(2))
	require.NoError(t, err)
	refused := e.Stats().Refused
	if _, err := e.Admit(""); !errors.Is(err, ErrBusy) || e.Stats().Refused != refused+1 {
		t.Fatalf("busy with every place taken: %v, %d refusals, before %d", err, e.Stats().Refused, refused)
	}
	close(gate)
	for _, s := range append(streams, more...) {
		finish(t, s)
	}
	// Requests that are still being made have one reserved place each.
	var leave []func()
	for range 4 {
		release, err := e.Admit("")
		require.NoError(t, err, "busy with a place free")
		leave = append(leave, release)
	}
	if _, err := e.Admit(""); !errors.Is(err, ErrBusy) || waiting() != 4 {
		t.Fatalf("no place is left: %v, %d are taken", err, waiting())
	}
	_, err = e.SubmitAll(ctx, requests(1))
	require.ErrorIs(t, err, ErrBusy, "no place is left")
	leave[0]()
	leave[0]()
	_, err = e.Admit("")
	require.NoError(t, err)
	_, err = e.Admit("")
	require.ErrorIs(t, err, ErrBusy, "a place was given back twice")
}

// TestQueueOfTenants checks that a tenant gets its share of the queue and no more, that
// another one still gets a place when the queue is full, and what the errors say.
func TestQueueOfTenants(t *testing.T) {
	m, gate := gated(enginetest.Options{})
	e := start(t, m, Options{MaxActive: 2, QueueLength: 4, CacheEntries: 1})
	ctx := testContext(t)
	var all []*Stream
	ask := func(tenant string, n int) error {
		r := Request{Prompt: encode("x"), MaxTokens: 1, Tenant: tenant}
		streams, err := e.SubmitAll(ctx, slices.Repeat([]Request{r}, n))
		all = append(all, streams...)
		return err
	}
	if err := ask("secret", 5); !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "at most 4") {
		t.Fatalf("five requests of one tenant for two places and two of the queue: %v", err)
	}
	require.NoError(t, ask("secret", 4))
	err := ask("secret", 1)
	if !errors.Is(err, ErrShare) || !errors.Is(err, ErrBusy) || strings.Contains(err.Error(), "secret") {
		t.Fatalf("beyond its share: %v", err)
	}
	for _, tenant := range []string{"b", "", "c"} { // the last one runs beyond the places
		require.NoError(t, ask(tenant, 1), "tenant %q", tenant)
	}
	if err := ask("d", 1); !errors.Is(err, ErrBusy) || errors.Is(err, ErrShare) {
		t.Fatalf("everything is full: %v", err)
	}
	_, err = e.SubmitAll(ctx, []Request{{Prompt: encode("x"), Tenant: "a"}, {Prompt: encode("x"), Tenant: "b"}})
	require.ErrorIs(t, err, ErrInvalid, "two tenants at once")
	close(gate)
	for _, s := range all {
		finish(t, s)
	}
	for _, weight := range []int{-1, MaxWeight + 1} {
		if _, err := e.SubmitAll(ctx, []Request{{Prompt: encode("x"), Tenant: "secret", Weight: weight}}); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Fatalf("a weight of %d: %v", weight, err)
		}
	}
}

// TestCacheScope checks that a request finds the sequences of its own scope only, so that
// no user learns what another has asked.
func TestCacheScope(t *testing.T) {
	e := start(t, enginetest.Script("answer"), Options{})
	cached := func(scope, more string) int {
		return ask(t, e, Request{Prompt: encode("a long question" + more), MaxTokens: 1, CacheScope: scope}).Usage.Cached
	}
	require.Zero(t, cached("one", ""), "cached in an empty cache")
	for _, scope := range []string{"two", ""} {
		require.Zero(t, cached(scope, ""), "scope %q: tokens cached by another", scope)
	}
	for _, scope := range []string{"one", "two", ""} {
		require.NotZero(t, cached(scope, " and more"), "scope %q does not find its own sequence", scope)
	}
}
