package lockstep

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// Leader is the model that all ranks run together, on rank 0. Info, Epoch and
// Reports may be called by any goroutine, the rest by one.
type Leader struct {
	host    *host
	cluster Cluster

	// Of the goroutine that runs steps.
	epoch     uint32 // of the last step that was sent, 0 before the first
	ran       bool   // that step ended well and is not committed
	committed bool   // it is committed, and the followers do not know
}

var (
	_ model.Model  = (*Leader)(nil)
	_ model.Epochs = (*Leader)(nil)
	_ Cluster      = (*cluster.Leader)(nil)
)

// NewLeader makes the model of a cluster whose planner is p.
func NewLeader(p *Program, c Cluster) *Leader { return &Leader{host: p.host, cluster: c} }

// Info implements model.Model. It is that of the first model which a Program
// loaded, empty before: wait for the first epoch. The models of later epochs
// are like it.
func (l *Leader) Info() model.Info {
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	return l.host.info
}

// Epoch implements model.Epochs.
func (l *Leader) Epoch() (uint64, error) {
	e, err := l.cluster.Epoch()
	if err != nil {
		return uint64(e.Number), &model.UnavailableError{Cause: err}
	}
	return uint64(e.Number), nil
}

// Forward implements model.Model: all ranks run the step. A step once sent is
// run to its end on every rank: ctx ends it only before. An error of this
// rank's memory, or in the step, comes before anything is sent; every other
// error ends the epoch and is a model.UnavailableError with the verdict.
func (l *Leader) Forward(ctx context.Context, step model.Step) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lockstep: step given up before it was sent: %w", err)
	}
	l.ran = false
	e, err := l.cluster.Epoch()
	if err != nil {
		return nil, &model.UnavailableError{Cause: err}
	}
	h := l.host
	if err := h.take(e.Done); err != nil {
		return nil, &model.UnavailableError{Cause: err}
	}
	defer h.give()
	if !h.joined || h.epoch.Number != e.Number {
		return nil, &model.UnavailableError{Cause: fmt.Errorf("epoch %d is over, and the next has not begun", e.Number)}
	}
	if e.Number != l.epoch {
		// The first step of an epoch, in which all sequences are new. If
		// the caller does not know of the epoch yet, the step may go on with
		// one that is lost.
		for _, en := range step.Entries {
			if en.Pos > 0 {
				return nil, &model.UnavailableError{Cause: fmt.Errorf("sequence %d was lost when epoch %d began", en.Seq, e.Number)}
			}
		}
		l.epoch, l.committed = e.Number, false
	}
	payload, err := work{committed: l.committed, step: step}.encode()
	if err != nil {
		return nil, err
	}
	if err := h.rank.Reserve(step); err != nil {
		return nil, err
	}
	n, err := l.cluster.Begin(e.Number, payload)
	if err != nil {
		return nil, l.lost(e, err)
	}
	l.committed = false // what was owed has been told
	rows, digest, err := h.run(step)
	if err != nil {
		return nil, l.lost(e, err)
	}
	if err := l.cluster.End(e.Done, n, digest); err != nil {
		return nil, l.lost(e, err)
	}
	l.ran = true
	return rows, nil
}

// lost ends the epoch, if it has not ended yet, and gives the verdict.
func (l *Leader) lost(e cluster.Epoch, cause error) error {
	verdict := context.Cause(e.Done)
	if verdict == nil {
		verdict = l.cluster.Fail(e.Number, cause)
	}
	if verdict == nil {
		verdict = cause
	}
	return &model.UnavailableError{Cause: verdict}
}

// Commit implements model.Model. The followers are told with the next step.
func (l *Leader) Commit(s model.Step) {
	if !l.ran || !l.enter() {
		return
	}
	defer l.host.give()
	l.host.rank.Commit(s)
	l.ran, l.committed = false, true
}

// Len implements model.Model. It is 0 when the epoch of the last step has ended.
func (l *Leader) Len(id model.SeqID) int {
	if !l.enter() {
		return 0
	}
	defer l.host.give()
	return l.host.rank.Len(id)
}

// enter takes the turn if the epoch of the last step still runs.
func (l *Leader) enter() bool {
	e, err := l.cluster.Epoch()
	if err != nil || e.Number != l.epoch || l.host.take(e.Done) != nil {
		return false
	}
	if !l.host.joined || l.host.epoch.Number != l.epoch {
		l.host.give()
		return false
	}
	return true
}

// Reports gives what every rank has counted, [size] in their order.
func (l *Leader) Reports(ctx context.Context) ([]Report, error) {
	raw, err := l.cluster.Reports(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Report, len(raw))
	for i, b := range raw {
		if i == 0 {
			out[0] = l.host.snapshot()
			continue
		}
		if out[i], err = parseReport(b, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Close implements model.Model: it frees the model of this rank, as the
// Program's Close. No step may run; the cluster is the caller's.
func (l *Leader) Close() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("it was not waited for before Close"))
	return l.host.close(ctx)
}
