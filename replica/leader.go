package replica

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
	resident *resident
	cluster  Cluster

	// Used by the goroutine that runs steps only.
	epoch     uint32 // of the last step that was sent, 0 before the first
	ran       bool   // the last step succeeded and is not committed
	committed bool   // the last step is committed; the followers are told with the next
}

var (
	_ model.Model  = (*Leader)(nil)
	_ model.Epochs = (*Leader)(nil)
	_ model.Sized  = (*Leader)(nil)
	_ Cluster      = (*cluster.Leader)(nil)
)

// NewLeader makes the model of a cluster whose planner is p.
func NewLeader(p *Program, c Cluster) *Leader { return &Leader{resident: p.resident, cluster: c} }

// Info implements model.Model. It is that of the first model that the Program
// loaded, and empty before the first epoch. Models of later epochs have the same.
func (l *Leader) Info() model.Info {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.info
}

// SequenceBytes implements model.Sized. It is 0 before the first epoch.
func (l *Leader) SequenceBytes(length int) int64 {
	l.resident.mu.Lock()
	sizes := l.resident.sizes
	l.resident.mu.Unlock()
	if sizes == nil {
		return 0
	}
	return sizes(length)
}

// SequenceBudget implements model.Sized: it is that of the last plan.
func (l *Leader) SequenceBudget() int64 {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.budget
}

// Epoch implements model.Epochs.
func (l *Leader) Epoch() (uint64, error) {
	e, err := l.cluster.Epoch()
	if err != nil {
		return uint64(e.Number), &model.UnavailableError{Cause: err}
	}
	return uint64(e.Number), nil
}

// Forward implements model.Model: all ranks run the step. Once sent, a step runs to
// its end on every rank; ctx cancels it only before. A lack of memory on this rank
// and errors in the step are returned before anything is sent. Every other error
// ends the epoch and is a model.UnavailableError with the cluster's verdict.
func (l *Leader) Forward(ctx context.Context, step model.Step) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("replica: step cancelled before it was sent: %w", err)
	}
	l.ran = false
	e, err := l.cluster.Epoch()
	if err != nil {
		return nil, &model.UnavailableError{Cause: err}
	}
	h := l.resident
	if err := h.acquire(e.Done); err != nil {
		return nil, &model.UnavailableError{Cause: err}
	}
	defer h.release()
	if !h.joined || h.epoch.Number != e.Number {
		return nil, &model.UnavailableError{Cause: fmt.Errorf("epoch %d is over, and the next has not begun", e.Number)}
	}
	if e.Number != l.epoch {
		// This is the first step of an epoch, in which all sequences are
		// new. A caller that does not know of the epoch yet may try to
		// continue a sequence that is lost.
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
	if err := h.rank.Prepare(step); err != nil {
		return nil, err
	}
	n, err := l.cluster.Begin(e.Number, payload)
	if err != nil {
		return nil, l.lost(e, err)
	}
	l.committed = false // sent with the payload
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

// lost ends the epoch, if it has not ended yet, and returns the verdict.
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

// Commit implements model.Model. The next step tells the followers.
func (l *Leader) Commit(s model.Step) {
	if !l.ran || !l.enter() {
		return
	}
	defer l.resident.release()
	l.resident.rank.Commit(s)
	l.ran, l.committed = false, true
}

// Len implements model.Model. It is 0 when the epoch of the last step has ended.
func (l *Leader) Len(id model.SeqID) int {
	if !l.enter() {
		return 0
	}
	defer l.resident.release()
	return l.resident.rank.Len(id)
}

// enter takes the turn if the epoch of the last step still runs.
func (l *Leader) enter() bool {
	e, err := l.cluster.Epoch()
	if err != nil || e.Number != l.epoch || l.resident.acquire(e.Done) != nil {
		return false
	}
	if !l.resident.joined || l.resident.epoch.Number != l.epoch {
		l.resident.release()
		return false
	}
	return true
}

// Reports are the reports of all ranks, [size] by rank.
func (l *Leader) Reports(ctx context.Context) ([]Report, error) {
	raw, err := l.cluster.Reports(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Report, len(raw))
	for i, b := range raw {
		if i == 0 {
			out[0] = l.resident.snapshot()
			continue
		}
		if out[i], err = parseReport(b, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Close implements model.Model: it frees the model of this rank, like the
// Program's Close. No step may be in flight. The cluster stays the caller's.
func (l *Leader) Close() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("Close does not wait for it"))
	return l.resident.close(ctx)
}
