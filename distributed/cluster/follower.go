package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// The pause between two attempts to reach the leader doubles from the first to
// the second.
const (
	minRetryPause = 50 * time.Millisecond
	maxRetryPause = 2 * time.Second
)

// quietLimit is how long a follower looks for its leader before it logs that, because ranks
// that start together need a moment. It is less than control.Dial waits for an answer, so
// that the first attempt without one is logged.
const quietLimit = 3 * time.Second

// exitTimeout is how long Follow waits at its end for work in progress, which
// ends at the next layer.
const exitTimeout = 500 * time.Millisecond

// follower is a rank that follows. It outlives its connections to the leader.
type follower struct {
	cfg    Config
	worker Worker
	tasks  chan func() // done in order by one goroutine

	mu  sync.Mutex
	run *run // nil between epochs
}

// errShutdown: the leader has ended the group.
var errShutdown = errors.New("the leader ended the group")

// rejectedError is the leader's answer to a hello that it rejects.
type rejectedError struct {
	reason string
	retry  bool // a later attempt may succeed
}

func (r *rejectedError) Error() string { return r.reason }

// Follow joins the group of the leader at cfg.Coordinator and does its work. It returns nil
// when the leader has ended the group, a person has drained this rank, or ctx has ended. It
// returns an error when the leader rejected this rank or could not be reached for
// ConnectTimeout. When the connection is lost, it looks for the leader again. A piece of work
// may outlive Follow by the time that it takes to notice the end.
func Follow(ctx context.Context, cfg Config, w Worker) error {
	cfg = cfg.withDefaults()
	cfg.Hello.Process = rand.Text()
	f := &follower{cfg: cfg, worker: w, tasks: make(chan func(), 64)}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for task := range f.tasks {
			task()
		}
	}()
	defer func() {
		close(f.tasks)
		select {
		case <-idle:
		case <-time.After(exitTimeout):
			cfg.Log.Warn("exiting while work is still in progress")
		}
		cfg.Transport.Close()
	}()

	lastContact := time.Now() // with the leader
	everJoined := false
	pause := minRetryPause
	for {
		joined, err := f.serve(ctx)
		if joined {
			everJoined = true
			lastContact, pause = time.Now(), minRetryPause
		}
		var rejected *rejectedError
		var refused *control.RefusedError
		switch {
		case errors.Is(err, errShutdown):
			cfg.Log.Info("the group has ended", "error", err)
			return nil
		case errors.Is(err, errDrained):
			cfg.Log.Info("this rank left the group; the group continues", "error", err)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &rejected) && !rejected.retry, errors.As(err, &refused):
			return fmt.Errorf("rank %d: the leader at %s rejected this rank: %w", cfg.Hello.Rank, cfg.Coordinator, err)
		case errors.Is(err, distributed.ErrConfig) && !everJoined: // such as a --data-port that is taken
			return fmt.Errorf("rank %d: %w", cfg.Hello.Rank, err)
		case time.Since(lastContact) > cfg.ConnectTimeout:
			return fmt.Errorf("rank %d: no leader at %s for %v: %w; check that rank 0 is running with --coordinator %s",
				cfg.Hello.Rank, cfg.Coordinator, cfg.ConnectTimeout, err, cfg.Coordinator)
		}
		if joined || time.Since(lastContact) > quietLimit {
			cfg.Log.Warn("looking for the leader", "address", cfg.Coordinator, "error", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		pause = min(2*pause, maxRetryPause)
	}
}

// inEpoch reports whether this rank is a member of an epoch.
func (f *follower) inEpoch() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.run != nil
}

// current returns the run of an epoch, nil if that epoch has ended.
func (f *follower) current(epoch uint32) *run {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil || f.run.Number != epoch {
		return nil
	}
	return f.run
}

// end ends the epoch, if there is one, with a verdict.
func (f *follower) end(verdict error) {
	f.mu.Lock()
	r := f.run
	f.run = nil
	var g *distributed.Group
	if r != nil {
		r.cancel(verdict)
		g = r.Group
	}
	f.mu.Unlock()
	if g == nil {
		return
	}
	g.Fail(verdict)
	f.tasks <- func() { // after the work that still uses it
		if err := g.Close(); err != nil {
			f.cfg.Log.Warn("cannot close the group", "epoch", r.Number, "error", err)
		}
	}
}
