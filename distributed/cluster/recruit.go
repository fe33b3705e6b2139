package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringmaster/distributed"
)

// Recruit is a rank that has prepared to join the running epoch and waits: what it lacks
// can be brought to it while the others work.
type Recruit struct {
	Rank int
	// Send brings a payload of at most 1 MiB less 12 bytes to the rank's Joiner. It waits
	// only while as many as mostAhead are in flight, which hides the latency of the link.
	// Its error wraps ErrRefused and says why the Joiner has not taken one of
	// them, or says that the rank no longer waits, because it or the epoch is lost, or that
	// ctx has ended. Only one goroutine may use a Recruit.
	Send func(ctx context.Context, payload []byte) error
	// Flush waits until the Joiner has taken everything that was sent, with the errors of
	// Send.
	Flush func(ctx context.Context) error
	// Join lets the rank join between two pieces of work. It must be called at the end,
	// also after an error.
	Join func()
}

// mostAhead is how many payloads may be in flight to a rank that waits: up to 4 MiB, far
// less than an outbox takes, and little enough that the heartbeats behind them arrive in
// time over 100 Mbit/s.
const mostAhead = 4

// ErrRefused: a Joiner has not taken what was sent to it.
var ErrRefused = errors.New("the rank refuses it")

// errNoRecruit: a rank no longer waits.
var errNoRecruit = errors.New("the rank no longer waits to join the epoch")

// recruit is the leader's side of a Recruit; mu of the leader guards it.
type recruit struct {
	l          *Leader
	conn, rank int
	epoch      uint32
	given      bool   // to a caller of Leader.Recruit
	inFlight   int    // payloads that were sent and not answered
	refusal    string // why the first of those that were refused was
}

// Recruit waits until a rank has prepared to join, until ctx or the group ends. Once it has
// been called no rank joins a running epoch before its Recruit says so. What ranks lack
// after a loss, when the next epoch forms at once, nobody brings them ahead.
func (l *Leader) Recruit(ctx context.Context) (*Recruit, error) {
	for {
		l.mu.Lock()
		l.sm.brings = true
		l.recruits = slices.DeleteFunc(l.recruits, func(r *recruit) bool { return !l.sm.waits(r.conn, r.epoch) })
		for _, r := range l.recruits {
			if !r.given {
				r.given = true
				l.mu.Unlock()
				return &Recruit{Rank: r.rank, Send: r.send, Flush: r.flush, Join: r.join}, nil
			}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.done:
			return nil, distributed.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// send implements Recruit.Send.
func (r *recruit) send(ctx context.Context, payload []byte) error {
	if err := r.await(ctx, mostAhead-1); err != nil {
		return err
	}
	waits := false
	r.l.event(func() {
		if waits = r.l.sm.waits(r.conn, r.epoch); waits {
			r.inFlight++
			r.l.sm.bring(r.conn, r.epoch, payload)
		}
	})
	if !waits {
		return r.gone()
	}
	return nil
}

// flush implements Recruit.Flush.
func (r *recruit) flush(ctx context.Context) error { return r.await(ctx, 0) }

// await waits until at most so many payloads are in flight.
func (r *recruit) await(ctx context.Context, most int) error {
	l := r.l
	for {
		l.mu.Lock()
		waits, inFlight, refusal, changed := l.sm.waits(r.conn, r.epoch), r.inFlight, r.refusal, l.changed
		l.mu.Unlock()
		switch {
		case !waits:
			return r.gone()
		case refusal != "":
			return fmt.Errorf("rank %d: %w: %s", r.rank, ErrRefused, refusal)
		case inFlight <= most:
			return nil
		}
		select {
		case <-changed:
		case <-l.done:
			return distributed.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gone is the error when the rank no longer waits.
func (r *recruit) gone() error { return fmt.Errorf("rank %d: %w", r.rank, errNoRecruit) }

// join implements Recruit.Join.
func (r *recruit) join() { r.l.event(func() { r.l.sm.brought(r.conn, r.epoch) }) }
