package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/control"
)

// TestDrain: a person with the key lets a rank leave when the others can do without it;
// a person without the key is refused.
func TestDrain(t *testing.T) {
	key := []byte("the key of this cluster")
	r := newRigThat(t, Continue, 3, key)
	one, two := r.follow(1, nil), r.follow(2, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "a"))
	drain := func(key []byte, rank int) error {
		_, err := Drain(soon(t), Config{Coordinator: r.addr, Key: key}, rank)
		return err
	}
	var strange *control.RefusedError
	require.ErrorAs(t, drain([]byte("some other key of 16 or more"), 2), &strange)
	require.Error(t, drain(nil, 2))
	var refused *DrainRefusedError
	require.ErrorAs(t, drain(key, 0), &refused)
	r.lead.fitsErr = errors.New("no room")
	err := drain(key, 2)
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "no room")
	require.NoError(t, r.do(e, "still the same epoch"))

	r.lead.fitsErr = nil
	require.NoError(t, drain(key, 2))
	require.NoError(t, r.ended(two), "its process ends in order")
	next := r.running(e.Number)
	require.Equal(t, []int{0, 1}, next.Members)
	require.NoError(t, r.do(next, "b"))
	require.ErrorContains(t, drain(key, 2), "rank 2 is not connected")

	// A caller that does not wait learns that the rank still leaves.
	n, err := r.leader.Begin(next.Number, []byte("long"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := Drain(ctx, Config{Coordinator: r.addr, Key: key}, 1)
		given <- err
	}()
	require.Eventually(t, func() bool {
		r.leader.mu.Lock()
		defer r.leader.mu.Unlock()
		return r.leader.sm.members[1].leaving
	}, limit, 2*time.Millisecond)
	cancel(errors.New("had enough"))
	require.ErrorContains(t, <-given, "rank 1 has not left yet; it leaves as soon as")
	d, err := r.lead.Work([]byte("long"))
	require.NoError(t, err)
	require.NoError(t, r.leader.End(t.Context(), n, d))
	require.NoError(t, r.ended(one))
	require.Equal(t, []int{0}, r.running(next.Number).Members)
}
