package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

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
	l.epoch, l.told = e.Number, true
	for i := range h.epoch.Group.Size() {
		delete(l.copied, worldRank(e, i))
	}
	return nil
}

// worldRank is the number in the world of a rank of an epoch's group.
func worldRank(e cluster.Epoch, i int) int {
	if len(e.Members) == 0 {
		return i
	}
	return e.Members[i]
}

// warm sends the ranks that are not warm what they lack, by their answers [size of the
// group]: what follows what they have taken before, or everything.
func (l *Leader) warm(e cluster.Epoch, all []answer) error {
	h := l.resident
	have, cold := map[model.SeqID]int(nil), false
	for i, a := range all {
		if a.warm {
			continue
		}
		c := l.copied[worldRank(e, i)]
		if c == nil || a.run != c.run || a.pieces != c.pieces || c.lineage != l.state.lineage {
			have, cold = nil, true
			break
		}
		if cold = true; have == nil {
			have = maps.Clone(c.have)
			continue
		}
		for id := range have {
			have[id] = min(have[id], c.have[id])
		}
	}
	if !cold || len(all) == 1 {
		return nil
	}
	if have != nil {
		if err := h.send(continued, l.tokens, have); err != nil {
			return err
		}
		all, err := h.agree(answer{warm: true})
		if err != nil || !slices.ContainsFunc(all, func(a answer) bool { return !a.warm }) {
			return err
		}
		slog.Warn("a rank refuses the rest of the sequences that it had taken in part before it joined; all get sent", "epoch", e.Number)
	}
	return h.send(whole, l.tokens, nil)
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
	l.resident.stopEntering()
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

// commitLimit is how long Commit waits for the model's turn. Joining a group, the longest
// that the model of the step itself keeps it, takes a few seconds at most; whatever takes
// longer loads another model, which has none of the sequences, or hangs.
const commitLimit = 30 * time.Second

// Commit implements model.Model. The next work tells the followers. A commit is good
// although the step's epoch has ended. If the model's turn does not come within
// commitLimit, all sequences are lost.
func (l *Leader) Commit(s model.Step) {
	h := l.resident
	if !l.ran || l.lost.Load() {
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
		return // another model has taken the place of the one that ran it
	}
	h.commit(s)
	l.ran, l.committed = false, true
	for _, e := range s.Entries {
		l.tokens[e.Seq] = append(l.tokens[e.Seq][:e.Pos], e.Tokens...)
		for _, c := range l.copied {
			c.rewound(e.Seq, e.Pos)
		}
	}
	for _, id := range s.Drop {
		delete(l.tokens, id)
		for _, c := range l.copied {
			delete(c.have, id)
		}
	}
	l.count()
}

// count computes what the sequences hold. The caller has the turn.
func (l *Leader) count() {
	var held int64
	for _, tokens := range l.tokens {
		held += l.resident.rank.SequenceBytes(len(tokens))
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
