package replica

import (
	"slices"

	"ringmaster/model"
)

// What the leader knows about the committed sequences, beside its rank: their tokens, and
// how much of them ranks have that receive the sequences while they change.

// apply notes what the commit of a step will change, in the order of a step.
func (l *Leader) apply(s model.Step) {
	for _, c := range s.Checkpoints {
		// Without what follows the first difference, the rank would lack what is taken, and
		// the memory of what is freed would not become free there.
		if at, ok := firstDifference(l.resident.rank.Checkpoints(c.Seq), c.At); ok {
			l.changed(c.Seq, at-1)
		}
	}
	for _, f := range s.Forks {
		l.tokens[f.Seq] = slices.Clone(l.tokens[f.From][:f.Length])
	}
	for _, e := range s.Entries {
		l.tokens[e.Seq] = append(l.tokens[e.Seq][:e.Pos], e.Tokens...)
		l.changed(e.Seq, e.Pos)
	}
	for _, id := range s.Drop {
		delete(l.tokens, id)
		for _, c := range l.copied {
			delete(c.have, id)
		}
	}
}

// changed notes that what ranks have received of a sequence from position pos on has
// changed.
func (l *Leader) changed(id model.SeqID, pos int) {
	for _, c := range l.copied {
		if n, ok := c.have[id]; ok {
			c.have[id] = min(n, pos)
		}
	}
}

// firstDifference returns the smallest number that only one of two ascending lists has.
func firstDifference(a, b []int) (n int, ok bool) {
	for i := 0; ; i++ {
		switch {
		case i == len(a) && i == len(b):
			return 0, false
		case i == len(a):
			return b[i], true
		case i == len(b):
			return a[i], true
		case a[i] != b[i]:
			return min(a[i], b[i]), true
		}
	}
}

// count updates the bytes of the sequences. The caller has the turn.
func (l *Leader) count() {
	rank, held := l.resident.rank, int64(0)
	for id, tokens := range l.tokens {
		held += rank.SequenceBytes(len(tokens)) + rank.CheckpointBytes()*int64(len(rank.Checkpoints(id)))
	}
	l.held.Store(held)
}
