package replica

import (
	"slices"

	"ringmaster/model"
)

// What the leader knows about the committed sequences: their tokens and the lengths of
// their checkpoints. It needs them to count memory, and to see what a rank lacks that
// receives the sequences while they change.

// apply notes what the commit of a step changes, in the order of a step.
func (l *Leader) apply(s model.Step) {
	for _, c := range s.Checkpoints {
		// A rank that has received the sequence gets it again from there. Otherwise it
		// would lack what is new, and the memory for what was freed would not be free.
		if at, ok := firstDifference(l.checkpoints[c.Seq], c.At); ok {
			l.changed(c.Seq, at-1)
		}
		l.setCheckpoints(c.Seq, c.At)
	}
	for _, f := range s.Forks {
		l.tokens[f.Seq] = slices.Clone(l.tokens[f.From][:f.Length])
		l.setCheckpoints(f.Seq, upToLength(l.checkpoints[f.From], f.Length))
	}
	for _, e := range s.Entries {
		l.tokens[e.Seq] = append(l.tokens[e.Seq][:e.Pos], e.Tokens...)
		l.setCheckpoints(e.Seq, upToLength(l.checkpoints[e.Seq], e.Pos))
		l.changed(e.Seq, e.Pos)
	}
	for _, id := range s.Drop {
		delete(l.tokens, id)
		delete(l.checkpoints, id)
		for _, c := range l.copied {
			delete(c.have, id)
		}
	}
}

// setCheckpoints notes the lengths of the checkpoints of a sequence.
func (l *Leader) setCheckpoints(id model.SeqID, at []int) {
	if len(at) == 0 {
		delete(l.checkpoints, id)
		return
	}
	l.checkpoints[id] = slices.Clone(at)
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

// upToLength returns those of the ascending lengths of checkpoints that are at most length.
func upToLength(at []int, length int) []int {
	n, found := slices.BinarySearch(at, length)
	if found {
		n++
	}
	return at[:n]
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
	var held int64
	for _, tokens := range l.tokens {
		held += l.resident.rank.SequenceBytes(len(tokens))
	}
	for _, at := range l.checkpoints {
		held += int64(len(at)) * l.resident.rank.CheckpointBytes()
	}
	l.held.Store(held)
}
