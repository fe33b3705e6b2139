package enginetest

import (
	"context"
	"fmt"

	"ringmaster/model"
)

// group lets a Model lose its sequences, as a model on several hosts does. Model.mu
// guards it.
type group struct {
	changes    uint64 // how often all sequences were lost
	cause      error  // why no step can run; nil when one can
	last       error  // the previous cause
	stop       context.CancelCauseFunc
	gone       map[model.SeqID]bool // lost; their ids must not be used again
	commitLost bool                 // a step succeeded and was lost before its Commit
}

// Epoch implements model.Epochs.
func (m *Model) Epoch() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes, m.cause
}

// Lose drops all sequences, ends the step in flight, and refuses further steps until
// Return. Their errors wrap model.ErrUnavailable and have the text of cause.
func (m *Model) Lose(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone == nil {
		m.gone = map[model.SeqID]bool{}
	}
	for id := range m.known {
		m.gone[id] = true
	}
	clear(m.seqs)
	clear(m.known)
	m.commitLost = m.forwarded != nil
	m.forwarded, m.next = nil, nil
	m.changes++
	m.cause = &model.UnavailableError{Cause: cause}
	m.last = m.cause
	if m.stop != nil {
		m.stop(m.cause)
	}
}

// Return makes a lost model available again.
func (m *Model) Return() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cause = nil
}

// refuse returns the error of a step that cannot run, because no step can or because it
// continues or forks a sequence that was lost since the step was planned; mu is held.
func (g *group) refuse(s model.Step) error {
	g.commitLost = false
	if g.cause != nil {
		return g.cause
	}
	var uses []model.SeqID
	for _, c := range s.Checkpoints {
		uses = append(uses, c.Seq)
	}
	isFork := map[model.SeqID]bool{}
	for _, f := range s.Forks {
		uses = append(uses, f.From)
		isFork[f.Seq] = true
	}
	for _, e := range s.Entries {
		if e.Pos > 0 && !isFork[e.Seq] {
			uses = append(uses, e.Seq)
		}
	}
	for _, id := range uses {
		if g.gone[id] {
			return &model.UnavailableError{Cause: fmt.Errorf("sequence %d was lost: %w", id, g.last)}
		}
	}
	return nil
}

// begin records the start of a step; mu is held. stepCtx ends when the step is lost.
func (g *group) begin(ctx context.Context) (stepCtx context.Context, epoch uint64, end context.CancelCauseFunc) {
	stepCtx, g.stop = context.WithCancelCause(ctx)
	return stepCtx, g.changes, g.stop
}

// lost returns the error of a step if its epoch has ended, nil otherwise; mu is held.
func (g *group) lost(epoch uint64) error {
	g.stop = nil
	if epoch == g.changes {
		return nil
	}
	return g.last
}
