package replica

import (
	"fmt"
	"maps"
	"slices"

	"ringmaster/model"
)

// What the leader knows about the committed sequences and its rank does not: their tokens,
// and how much of them each joining rank has received.

// apply notes what the commit of a step will change. It must precede the rank's Commit,
// because it compares with the checkpoints before the step.
func (l *Leader) apply(s model.Step) {
	for _, c := range s.Checkpoints {
		held := l.resident.rank.Checkpoints(c.Seq)
		for _, at := range c.At { // ascending
			if !slices.Contains(held, at) {
				l.changed(c.Seq, at-1)
				break
			}
		}
	}
	for _, f := range s.Forks {
		l.tokens[f.Seq] = slices.Clone(l.tokens[f.From][:l.Info().Begins(f)])
	}
	for _, e := range s.Entries {
		l.tokens[e.Seq] = append(l.tokens[e.Seq][:e.Pos], e.Tokens...)
		l.changed(e.Seq, e.Pos)
	}
	for _, id := range s.Drop {
		delete(l.tokens, id)
	}
	for _, c := range l.copied {
		c.freed = c.freed || len(s.Checkpoints)+len(s.Drop) > 0
		for _, id := range s.Drop {
			delete(c.have, id)
		}
	}
}

// changed notes that joining ranks must receive a sequence again from position pos on.
func (l *Leader) changed(id model.SeqID, pos int) {
	for _, c := range l.copied {
		if n, ok := c.have[id]; ok {
			c.have[id] = min(n, pos)
		}
	}
}

// inventory lists the committed sequences with the lengths of their checkpoints, as in the
// payload of a step.
func (l *Leader) inventory() (b []byte) {
	for _, id := range slices.Sorted(maps.Keys(l.tokens)) {
		b = appendCheckpoints(b, model.Checkpoints{Seq: id, At: l.resident.rank.Checkpoints(id)})
	}
	return b
}

// parseInventory returns the lengths of the checkpoints of each sequence.
func parseInventory(b []byte) (map[model.SeqID][]int, error) {
	all := map[model.SeqID][]int{}
	for len(b) > 0 {
		var c model.Checkpoints
		var err error
		if b, err = parseCheckpoints(b, &c); err != nil {
			return nil, fmt.Errorf("list of the leader's sequences: %w", err)
		}
		all[c.Seq] = c.At
	}
	return all, nil
}

// keepOnly frees the sequences and checkpoints that this rank received before it joined and
// the leader no longer has. The caller has the turn.
func (h *resident) keepOnly(t *took, inventory map[model.SeqID][]int) {
	for id := range t.sequences {
		at, live := inventory[id]
		if !live {
			h.rank.Drop(id)
			delete(t.sequences, id)
			continue
		}
		h.rank.KeepCheckpoints(id, at)
	}
}

// count updates the bytes that Held returns. The caller has the turn.
func (l *Leader) count() {
	rank, held := l.resident.rank, int64(0)
	for id, tokens := range l.tokens {
		held += rank.SequenceBytes(len(tokens)) + rank.CheckpointBytes()*int64(len(rank.Checkpoints(id)))
	}
	l.held.Store(held)
}
