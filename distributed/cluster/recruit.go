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
	// Send brings a payload of at most 1 MiB less 12 bytes to the rank's Joiner and waits
	// until that has taken it. Its error wraps ErrRefused and says why the Joiner has not,
	// or says that the rank no longer waits, because it or the epoch is lost, or that ctx
	// has ended.
	Send func(ctx context.Context, payload []byte) error
	// Join lets the rank join between two pieces of work. It must be called at the end,
	// also after an error.
	Join func()
}

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
	answered   bool   // the last Send
	refusal    string // why it was refused
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
				return &Recruit{Rank: r.rank, Send: r.send, Join: r.join}, nil
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
	l, waits := r.l, false
	l.event(func() {
		if waits = l.sm.waits(r.conn, r.epoch); waits {
			r.answered, r.refusal = false, ""
			l.sm.bring(r.conn, r.epoch, payload)
		}
	})
	for {
		l.mu.Lock()
		waits = waits && l.sm.waits(r.conn, r.epoch)
		answered, refusal, changed := r.answered, r.refusal, l.changed
		l.mu.Unlock()
		switch {
		case !waits:
			return fmt.Errorf("rank %d: %w", r.rank, errNoRecruit)
		case answered && refusal != "":
			return fmt.Errorf("rank %d: %w: %s", r.rank, ErrRefused, refusal)
		case answered:
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

// join implements Recruit.Join.
func (r *recruit) join() { r.l.event(func() { r.l.sm.brought(r.conn, r.epoch) }) }
