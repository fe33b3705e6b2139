package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringmaster/distributed"
)

// Recruit is a rank that has prepared to join the running epoch and waits, so that the
// program can send it what it lacks while the others work.
type Recruit struct {
	Rank int
	Host string // name of its host, for people
	// Send sends a payload of at most 1 MiB less 12 bytes to the rank's Joiner. It waits
	// only while mostAhead payloads are in flight, so that the latency of the link is
	// hidden. Its error wraps ErrRefused and says why the Joiner refused a payload, or says
	// that the rank no longer waits, because it or the epoch is lost, or that ctx has
	// ended. Only one goroutine may use a Recruit.
	Send func(ctx context.Context, payload []byte) error
	// Flush waits until the Joiner has taken everything that was sent. Its errors are those
	// of Send.
	Flush func(ctx context.Context) error
	// Join lets the rank join between two pieces of work. The caller must call it at the
	// end, after an error too, because otherwise the rank keeps waiting.
	Join func()
}

// mostAhead bounds the payloads in flight to a waiting rank. They have up to 4 MiB, far
// less than an outbox takes, so that the heartbeats behind them arrive in time over 100
// Mbit/s.
const mostAhead = 4

// ErrRefused: a Joiner refused what was sent to it.
var ErrRefused = errors.New("the rank refused it")

// errNoRecruit: a rank no longer waits.
var errNoRecruit = errors.New("the rank no longer waits to join the epoch")

// recruit is the leader's side of a Recruit; mu of the leader guards it.
type recruit struct {
	l          *Leader
	conn, rank int
	host       string
	epoch      uint32
	given      bool   // to a caller of Leader.Recruit
	inFlight   int    // payloads that were sent and not answered
	refusal    string // why the first refused payload was refused
}

// Recruit waits until a rank has prepared to join, until ctx or the group ends. After the
// first call a rank joins a running epoch only when its Recruit says so. After a loss the
// next epoch forms at once, so nothing is sent ahead to its ranks.
func (l *Leader) Recruit(ctx context.Context) (*Recruit, error) {
	var r *recruit
	err := l.until(ctx, func() (bool, error) {
		if l.sm.phase == stopped {
			return false, distributed.ErrClosed
		}
		l.sm.brings = true
		l.recruits = slices.DeleteFunc(l.recruits, func(r *recruit) bool { return !l.sm.waits(r.conn, r.epoch) })
		i := slices.IndexFunc(l.recruits, func(r *recruit) bool { return !r.given })
		if i < 0 {
			return false, nil
		}
		r = l.recruits[i]
		r.given = true
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return &Recruit{Rank: r.rank, Host: r.host, Send: r.send, Flush: r.flush, Join: r.join}, nil
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
	return r.l.until(ctx, func() (bool, error) {
		switch {
		case !r.l.sm.waits(r.conn, r.epoch):
			return false, r.gone()
		case r.refusal != "":
			return false, fmt.Errorf("%s: %w: %s", distributed.RankName(r.rank, r.host), ErrRefused, r.refusal)
		}
		return r.inFlight <= most, nil
	})
}

// gone is the error when the rank no longer waits.
func (r *recruit) gone() error {
	return fmt.Errorf("%s: %w", distributed.RankName(r.rank, r.host), errNoRecruit)
}

// join implements Recruit.Join.
func (r *recruit) join() { r.l.event(func() { r.l.sm.brought(r.conn, r.epoch) }) }
