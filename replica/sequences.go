package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// The leader's side of what outlives an epoch: its sequences, and the last step.

// enter makes sure that all ranks have begun the epoch together with the leader's
// sequences. The caller has the turn.
func (l *Leader) enter(e cluster.Epoch, step model.Step) error {
	h := l.resident
	if l.state.loads != h.loads && l.state.lineage != 0 {
		l.lose()
	}
	if l.lost.Load() || l.state.lineage == 0 {
		if err := l.anew(step); err != nil {
			return err
		}
	}
	if l.epoch == e.Number {
		return nil
	}
	b := beginning{committed: l.committed, number: l.state.number, lineage: l.state.lineage}
	n, err := l.cluster.Begin(e.Number, b.encode())
	if err != nil {
		return err
	}
	cold, err := h.agree(true)
	if err == nil && cold {
		err = h.send(l.tokens)
	}
	if err == nil {
		err = l.cluster.End(e.Done, n, nil)
	}
	if err != nil {
		return err
	}
	l.epoch, l.told = e.Number, true
	return nil
}

// anew begins a lineage without sequences. A caller that does not know of the loss yet
// may try to continue one.
func (l *Leader) anew(step model.Step) error {
	for _, en := range step.Entries {
		if en.Pos > 0 {
			l.lose()
			return &model.UnavailableError{Cause: fmt.Errorf("sequence %d was lost with its epoch", en.Seq)}
		}
	}
	l.resident.rank.Forget()
	l.tokens = map[model.SeqID][]int32{}
	l.held.Store(0)
	l.epoch, l.committed, l.told = 0, false, true
	l.state = state{lineage: 1 + rand.Uint64N(^uint64(0)), number: l.given, loads: l.resident.loads}
	l.lost.Store(false)
	return nil
}

// interrupted ends the epoch, if it has not ended yet, and returns why it has; again
// tells that another epoch may run the step. If this rank is to blame, it would fail
// there, too.
func (l *Leader) interrupted(e cluster.Epoch, cause error) (again bool, verdict error) {
	if errors.Is(cause, model.ErrUnavailable) {
		l.lose()
		return false, cause
	}
	own := false
	if verdict = context.Cause(e.Done); verdict == nil {
		var exchange *distributed.OpError
		own = !errors.As(cause, &exchange)
		verdict = l.cluster.Fail(e.Number, cause)
	}
	if verdict == nil {
		verdict = cause
	}
	if own {
		l.lose()
		return false, &model.UnavailableError{Cause: verdict}
	}
	return true, verdict
}

// Commit implements model.Model. The next work tells the followers. A commit is good
// although the step's epoch has ended.
func (l *Leader) Commit(s model.Step) {
	h := l.resident
	if !l.ran || l.lost.Load() || h.acquire(context.Background()) != nil {
		return
	}
	defer h.release()
	if h.rank == nil || h.loads != l.state.loads {
		return // another model has taken the place of the one that ran it
	}
	h.rank.Commit(s)
	l.ran, l.committed = false, true
	for _, e := range s.Entries {
		l.tokens[e.Seq] = append(l.tokens[e.Seq][:e.Pos], e.Tokens...)
	}
	for _, id := range s.Drop {
		delete(l.tokens, id)
	}
	var held int64
	for _, tokens := range l.tokens {
		held += h.rank.SequenceBytes(len(tokens))
	}
	l.held.Store(held)
}

// Len implements model.Model. It is 0 when all sequences are lost.
func (l *Leader) Len(id model.SeqID) int {
	if l.lost.Load() {
		return 0
	}
	return len(l.tokens[id])
}
