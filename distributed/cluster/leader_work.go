package cluster

import (
	"context"
	"fmt"

	"ringmaster/distributed"
)

// What the leader's program asks of a running group.

// Epoch returns the running epoch, or an error that says why none is running.
func (l *Leader) Epoch() (Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.sm.status()
	if err != nil {
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

// End tells that this rank has done work n, and waits until all ranks have done
// the work before n with equal digests. If the epoch has ended, its error is
// the verdict.
func (l *Leader) End(ctx context.Context, n uint64, d Digest) error {
	l.event(func() { l.sm.done(0, n, d) })
	for {
		l.mu.Lock()
		settled, changed := l.sm.ledger.settled, l.changed
		_, err := l.sm.status()
		l.mu.Unlock()
		switch {
		case err != nil:
			return err
		case settled+1 >= n:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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
		l.sm.failed(rank, epoch, cause.Error())
		_, err = l.sm.status()
	})
	if err == nil { // that epoch ended long ago
		err = cause
	}
	return err
}

// Reports asks every follower for its Report, once the work given so far is
// settled, and waits for the answers: [Size], nil for this rank. A second call
// at the same time fails with distributed.ErrBusy.
func (l *Leader) Reports(ctx context.Context) ([][]byte, error) {
	l.mu.Lock()
	if l.reports != nil {
		l.mu.Unlock()
		return nil, distributed.ErrBusy
	}
	l.reports = make([][]byte, l.cfg.Hello.Size)
	given, asked := l.sm.ledger.given, false
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.reports = nil
		l.mu.Unlock()
	}()
	for {
		l.mu.Lock()
		_, err := l.sm.status()
		if err == nil && !asked && l.sm.ledger.settled >= given {
			asked = true
			l.sm.toAll(message{Kind: kindReportRequest})
			l.performAll()
		}
		out, changed, missing := l.reports, l.changed, 0
		for r := 1; r < len(out); r++ {
			if out[r] == nil {
				missing++
			}
		}
		l.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case missing == 0:
			return out, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d ranks have not reported: %w", missing, context.Cause(ctx))
		}
	}
}
