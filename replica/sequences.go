package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// The leader's side of what outlives an epoch: its sequences and the last step.

// enter makes sure that all ranks have begun the epoch together with the leader's
// sequences. The caller has the turn.
func (l *Leader) enter(e cluster.Epoch, step model.Step) error {
	h := l.resident
	if l.state.loads != h.loads && l.state.lineage != 0 {
		l.lose()
	}
	if l.epoch != e.Number && l.state.lineage != 0 && (h.staged() || l.staged) {
		l.lose() // no rank has all layers of a sequence, or those of its new stage
	}
	if l.sequencesLost.Load() || l.state.lineage == 0 {
		if err := l.restart(step); err != nil {
			return err
		}
	}
	if l.epoch == e.Number {
		return nil
	}
	b := beginning{committed: l.committed, kept: l.kept, number: l.state.number, lineage: l.state.lineage}
	n, err := l.cluster.Begin(e.Number, b.encode())
	if err != nil {
		return err
	}
	all, err := h.agree(answer{warm: true})
	if err == nil {
		err = l.warm(e, all)
	}
	if err == nil {
		err = l.cluster.End(e.Done, n, nil)
	}
	if err != nil {
		return err
	}
	l.epoch, l.staged, l.followersInformed = e.Number, h.staged(), true
	for i := range h.epoch.Group.Size() {
		delete(l.copied, worldRank(e, i))
	}
	return nil
}

// worldRank returns the number in the world of a rank of an epoch's group.
func worldRank(e cluster.Epoch, i int) int {
	if len(e.Members) == 0 {
		return i
	}
	return e.Members[i]
}

// warm sends the ranks that are not warm what they lack, by their answers [size of the
// group]: the rest of what they have received before, or everything.
func (l *Leader) warm(e cluster.Epoch, all []answer) error {
	h := l.resident
	have, lacking := map[model.SeqID]int(nil), false
	for i, a := range all {
		if a.warm {
			continue
		}
		c := l.copied[worldRank(e, i)]
		if c == nil || a.run != c.run || a.pieces != c.pieces || c.lineage != l.state.lineage {
			have, lacking = nil, true
			break
		}
		if lacking = true; have == nil {
			have = maps.Clone(c.have)
			continue
		}
		for id := range have {
			have[id] = min(have[id], c.have[id])
		}
	}
	if !lacking || len(all) == 1 {
		return nil
	}
	if have != nil {
		if err := h.send(continued, l.inventory(), l.tokens, have); err != nil {
			return err
		}
		all, err := h.agree(answer{warm: true})
		if err != nil || !anyLacks(all) {
			return err
		}
		slog.Warn("a rank refused the rest of the sequences that it had partly received before it joined; the leader sends all of them", "epoch", e.Number)
	}
	return h.send(whole, nil, l.tokens, nil)
}

// restart begins a lineage without sequences. It fails if the step needs a sequence,
// because its caller may not know of the loss yet.
func (l *Leader) restart(step model.Step) error {
	if id, ok := needs(step); ok {
		l.lose()
		return &model.UnavailableError{Cause: fmt.Errorf("sequence %d was lost with its epoch", id)}
	}
	l.resident.stopEntering()
	l.resident.rank.Forget()
	l.tokens = map[model.SeqID][]int32{}
	l.held.Store(0)
	l.epoch, l.committed, l.kept, l.followersInformed = 0, false, nil, true
	l.state = state{lineage: 1 + rand.Uint64N(^uint64(0)), number: l.lastSent, loads: l.resident.loads}
	l.sequencesLost.Store(false)
	return nil
}

// needs returns a sequence that must exist before a step, if there is one.
func needs(s model.Step) (id model.SeqID, ok bool) {
	switch {
	case len(s.Checkpoints) > 0:
		return s.Checkpoints[0].Seq, true
	case len(s.Forks) > 0:
		return s.Forks[0].From, true
	}
	for _, e := range s.Entries {
		if e.Pos > 0 {
			return e.Seq, true
		}
	}
	return 0, false
}

// interrupted ends the epoch, if it has not ended yet, and returns the reason; again says
// that another epoch may run the step. It is false if this rank is to blame, because the
// step would fail there, too.
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

// commitLimit is how long Commit waits for the model's turn. Joining a group, the longest
// use by the step's own model, takes a few seconds at most. A longer wait means that
// another model, which has none of the sequences, is being loaded, or that something
// hangs.
const commitLimit = 30 * time.Second

// Commit implements model.Model. The next work tells the followers, also how many tokens
// of each entry count. A commit is valid
// even if the step's epoch has ended. If it does not get the model's turn within
// commitLimit, all sequences are lost.
func (l *Leader) Commit(s model.Step) {
	h := l.resident
	if !l.lastSucceeded || l.sequencesLost.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitLimit)
	defer cancel()
	if h.acquire(ctx) != nil {
		l.lose()
		return
	}
	defer h.release()
	if h.rank == nil || h.loads != l.state.loads {
		return // another model has replaced the one that ran the step
	}
	l.apply(s)
	h.commit(s)
	l.lastSucceeded, l.committed, l.kept = false, true, l.ran.Kept(s)
	l.count()
}

// Len implements model.Model. It is 0 when all sequences are lost.
func (l *Leader) Len(id model.SeqID) int {
	if l.sequencesLost.Load() {
		return 0
	}
	return len(l.tokens[id])
}
