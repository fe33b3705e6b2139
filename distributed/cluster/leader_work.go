package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
)

// What the leader's program can ask of a running group.

// Epoch returns the running epoch, or an error that says why none is running.
func (l *Leader) Epoch() (Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current()
}

// current is Epoch; mu is held.
func (l *Leader) current() (Epoch, error) {
	n, err := l.sm.status()
	if err != nil {
		if how := l.forming.progress(time.Now(), l.reads); how != "" && l.sm.recovering() {
			err = fmt.Errorf("%w; %s", err, how)
		}
		return Epoch{Number: n}, err
	}
	return l.run.Epoch, nil
}

// Begin numbers a piece of work, of at most 1 MiB less 12 bytes, and sends it to
// the followers of the epoch. It fails if that epoch is not running.
func (l *Leader) Begin(epoch uint32, payload []byte) (n uint64, err error) {
	l.event(func() { n, err = l.sm.begin(epoch, payload) })
	return n, err
}

// End says that this rank has done work n, and waits until all ranks have done it with
// equal digests. If the epoch ends first, the error is its verdict.
func (l *Leader) End(ctx context.Context, n uint64, d Digest) error {
	l.event(func() { l.sm.done(0, n, d) })
	return l.until(ctx, func() (bool, error) {
		_, err := l.sm.status()
		switch {
		case l.sm.ledger.settled >= n:
			return true, nil
		case err == nil && !l.sm.ledger.awaits(n):
			return false, fmt.Errorf("work %d was lost with its epoch", n)
		}
		return false, err
	})
}

// EndLater says that this rank has done work n, and does not wait for the others: what they
// report later ends the epoch or nothing. End of later work waits for this, too.
func (l *Leader) EndLater(n uint64, d Digest) { l.event(func() { l.sm.done(0, n, d) }) }

// State returns what Epoch does, and, if no epoch runs, whether the next one is forming
// by itself after a loss, so that sequences may survive. recovering is false before the
// first epoch, with another policy than Continue, when the remaining ranks cannot run the
// model, and after Config.RecoverTimeout. Both results describe the same moment.
func (l *Leader) State() (e Epoch, recovering bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err = l.current()
	return e, err != nil && l.sm.recovering(), err
}

// Await returns the running epoch. While the group is recovering it waits for the
// next one until ctx ends; the error is the verdict, or why ctx has ended.
func (l *Leader) Await(ctx context.Context) (e Epoch, err error) {
	err = l.until(ctx, func() (bool, error) {
		n, err := l.sm.status()
		if err == nil {
			e = l.run.Epoch
			return true, nil
		}
		e = Epoch{Number: n}
		if l.sm.recovering() {
			return false, nil
		}
		return false, err
	})
	return e, err
}

// Fail ends the epoch because this rank could not do its work, and returns the
// verdict. The verdict blames the rank that cause names, if it is a
// *distributed.OpError with a peer.
func (l *Leader) Fail(epoch uint32, cause error) error {
	rank := 0
	if peer, ok := peerOf(cause); ok {
		rank = peer
	}
	var err error
	l.event(func() {
		l.sm.failed(rank, epoch, cause.Error(), nil)
		_, err = l.sm.status()
	})
	if err == nil { // that epoch ended long ago
		err = cause
	}
	return err
}

// Reports asks every follower for its Report once all current work is settled, and waits
// for the answers: [Size], nil for this rank and for ranks outside the epoch. A second
// call at the same time fails with distributed.ErrBusy.
func (l *Leader) Reports(ctx context.Context) ([][]byte, error) {
	l.mu.Lock()
	if l.reports != nil {
		l.mu.Unlock()
		return nil, distributed.ErrBusy
	}
	l.reports = make([][]byte, l.cfg.Hello.Size)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.reports = nil
		l.mu.Unlock()
	}()
	var out [][]byte
	asked, missing := false, 0
	err := l.until(ctx, func() (bool, error) {
		if _, err := l.sm.status(); err != nil {
			return false, err
		}
		if !asked && len(l.sm.ledger.open) == 0 {
			asked = true
			l.sm.toGroup(message{Kind: kindReportRequest})
			l.performAll()
		}
		out, missing = l.reports, 0
		for _, r := range l.sm.group {
			if r > 0 && out[r] == nil {
				missing++
			}
		}
		return missing == 0, nil
	})
	switch cause := context.Cause(ctx); {
	case err == nil:
		return out, nil
	case errors.Is(err, cause):
		return nil, fmt.Errorf("%d ranks have not reported: %w", missing, cause)
	}
	return nil, err
}
