package decoder

import (
	"cmp"
	"fmt"
	"slices"

	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// checkpoint is a copy of what later tokens overwrite of a sequence's state at a committed
// length. It never changes, so a fork shares the checkpoints of its source.
type checkpoint struct {
	length int
	memory []byte // the overwritten sections of Cache.State, in memory of the backend
	users  int    // sequences that have it; each is charged for it, because any may be the last
}

// section returns the bytes of the checkpoint, under its name in snapshots.
func (c *checkpoint) section() snapshot.Section {
	return snapshot.Section{Name: checkpointName(c.length), Parts: [][]byte{c.memory}}
}

func checkpointName(length int) string { return fmt.Sprint("checkpoint ", length) }

// copied is what the cache of an uncommitted fork holds. A step that runs again does not
// copy it again.
type copied[C Cache] struct {
	from    *sequence[C]
	commits int // of from, when it was copied
	is      standing
}

// change is what a prepared step changes in a sequence, apart from its entry.
type change[C Cache] struct {
	q     *sequence[C]
	after []*checkpoint // those that the sequence has from the step on, ascending
	taken []*checkpoint // the new ones among them; the sequence is charged for them already
	fork  *standing     // of a fork, otherwise nil
}

// says describes a rewind that ran and was not committed, for errors.
func (s standing) says() string {
	return fmt.Sprintf("it has %d, but a step that was not committed has overwritten them from %d on", s.length, s.intact)
}

// checkForks checks the checkpoints, the forks and the drops of a step. It returns the
// standing of each fork.
func (m *Model[C]) checkForks(step model.Step) (map[model.SeqID]standing, error) {
	entries := make(map[model.SeqID]int, len(step.Entries)) // positions
	for _, e := range step.Entries {
		entries[e.Seq] = e.Pos
	}
	after := make(map[model.SeqID][]int, len(step.Checkpoints))
	for _, c := range step.Checkpoints {
		if _, twice := after[c.Seq]; twice {
			return nil, m.errorf("sequence %d: checkpoints twice in one step", c.Seq)
		}
		pos, runs := entries[c.Seq]
		if err := m.checkCheckpoints(c, runs, pos); err != nil {
			return nil, err
		}
		after[c.Seq] = c.At
	}
	forks := make(map[model.SeqID]standing, len(step.Forks))
	for _, f := range step.Forks {
		at, listed := after[f.From]
		if !listed {
			at = m.Checkpoints(f.From)
		}
		if _, twice := forks[f.Seq]; twice {
			return nil, m.errorf("sequence %d: a fork twice in one step", f.Seq)
		}
		if _, listed := after[f.Seq]; listed {
			return nil, m.errorf("sequence %d: checkpoints of a fork of the same step", f.Seq)
		}
		is, err := m.checkFork(f, at)
		if err != nil {
			return nil, err
		}
		forks[f.Seq] = is
	}
	for _, id := range step.Drop {
		_, runs := entries[id]
		_, fork := forks[id]
		if _, listed := after[id]; listed || fork || runs {
			return nil, m.errorf("sequence %d: dropped by a step that uses it otherwise than as the source of forks", id)
		}
	}
	return forks, nil
}

// checkCheckpoints checks the checkpoints of one sequence. If runs is set, the step has an
// entry that extends it from pos on.
func (m *Model[C]) checkCheckpoints(c model.Checkpoints, runs bool, pos int) error {
	is, last := m.standing(c.Seq), 0
	if len(c.At) > snapshot.MaxCheckpoints {
		return m.errorf("sequence %d: %d checkpoints; at most %d are possible", c.Seq, len(c.At), snapshot.MaxCheckpoints)
	}
	for _, at := range c.At {
		switch {
		case at <= last:
			return m.errorf("sequence %d: checkpoints at %v; expected ascending lengths from 1 on", c.Seq, c.At)
		case at > is.length:
			return m.errorf("sequence %d: a checkpoint at %d, but it has %d", c.Seq, at, is.length)
		case m.checkpointAt(c.Seq, at) != nil:
		case is.peak-at > m.o.Info.Rewind:
			return m.errorf("sequence %d: a checkpoint at %d, but it has been at %d; at most %d positions back are possible", c.Seq, at, is.peak, m.o.Info.Rewind)
		case is.partial > 0:
			return m.errorf("sequence %d: a checkpoint at %d, but it is partial up to %d", c.Seq, at, is.partial)
		case runs && pos < at: // the entry frees it
		case at > is.intact:
			return m.errorf("sequence %d: a checkpoint at %d; %s", c.Seq, at, is.says())
		}
		last = at
	}
	return nil
}

// checkFork checks a fork whose source has checkpoints at the given lengths, and returns
// the standing of the fork.
func (m *Model[C]) checkFork(f model.Fork, at []int) (is standing, err error) {
	from := m.standing(f.From)
	is = standing{length: f.Length, peak: from.peak, intact: f.Length}
	near := m.near(from, f.Length)
	if !near {
		is.peak = f.Length + m.o.Info.Rewind
	}
	if f.Replay {
		begins := m.o.Info.Begins(f)
		is = standing{length: begins, peak: begins + m.o.Info.Rewind, intact: begins, partial: f.Length, replayed: f.Length}
	}
	switch {
	case m.standing(f.Seq).length > 0 || f.Seq == f.From:
		return is, m.errorf("sequence %d: it cannot be a fork because it exists", f.Seq)
	case f.Length < 1 || f.Length > from.length:
		return is, m.errorf("sequence %d: a fork of the first %d tokens of sequence %d, which has %d", f.Seq, f.Length, f.From, from.length)
	case f.Replay && m.o.Info.Replay == 0:
		return is, m.errorf("sequence %d: a fork that runs tokens of sequence %d again, which this model cannot do", f.Seq, f.From)
	case f.Replay && is.length < 1:
		return is, m.errorf("sequence %d: a fork that runs the last of the first %d tokens of sequence %d again; more than %d are necessary", f.Seq, f.Length, f.From, m.o.Info.Replay)
	case !f.Replay && !near && !slices.Contains(at, f.Length):
		return is, m.errorf("sequence %d: a fork of the first %d tokens of sequence %d, which has been at %d%s and has checkpoints at %v; without one at most %d positions back are possible",
			f.Seq, f.Length, f.From, from.peak, from.saysPartial(), at, m.o.Info.Rewind)
	case f.Length > from.intact && !m.holds(f, is):
		return is, m.errorf("sequence %d: a fork of the first %d tokens of sequence %d; %s", f.Seq, f.Length, f.From, from.says())
	}
	return is, nil
}

// near reports whether a sequence has its state at a length without a checkpoint.
func (m *Model[C]) near(is standing, length int) bool {
	return is.partial == 0 && is.peak-length <= m.o.Info.Rewind
}

// saysPartial describes a partial sequence, for errors.
func (s standing) saysPartial() string {
	if s.partial == 0 {
		return ""
	}
	return fmt.Sprintf(", is partial up to %d,", s.partial)
}

// holds reports whether the cache of a fork already has its state from an earlier step that
// was not committed. That step may have rewound From and overwritten the state, so a second
// copy would be wrong.
func (m *Model[C]) holds(f model.Fork, is standing) bool {
	q, from := m.sequences[f.Seq], m.sequences[f.From]
	return q != nil && q.copied == copied[C]{from, from.commits, is}
}

// checkpointAt returns the checkpoint of a sequence at a length, or nil.
func (m *Model[C]) checkpointAt(id model.SeqID, length int) *checkpoint {
	if q := m.sequences[id]; q != nil {
		return find(q.checkpoints, length)
	}
	return nil
}

func find(list []*checkpoint, length int) *checkpoint {
	if i := slices.IndexFunc(list, func(c *checkpoint) bool { return c.length == length }); i >= 0 {
		return list[i]
	}
	return nil
}

// Checkpoints returns the lengths of the committed checkpoints of a sequence, ascending; nil
// for an unknown sequence.
func (m *Model[C]) Checkpoints(id model.SeqID) (at []int) {
	if q := m.sequences[id]; q != nil {
		for _, c := range q.checkpoints {
			at = append(at, c.length)
		}
	}
	return at
}

// KeepCheckpoints frees the checkpoints of a sequence that are not at the given lengths. It
// must not run during a step.
func (m *Model[C]) KeepCheckpoints(id model.SeqID, at []int) {
	q := m.sequences[id]
	if q == nil {
		return
	}
	m.forgo(id)
	var kept, gone []*checkpoint
	for _, c := range q.checkpoints {
		if slices.Contains(at, c.length) {
			kept = append(kept, c)
		} else {
			gone = append(gone, c)
		}
	}
	q.checkpoints = kept
	m.release(gone)
}

// prepareCheckpoints takes the new checkpoints of a checked step.
func (m *Model[C]) prepareCheckpoints(step model.Step) error {
	for _, c := range step.Checkpoints {
		q := m.sequences[c.Seq]
		if q == nil {
			continue
		}
		change := &change[C]{q: q}
		m.changes[c.Seq] = change
		for _, at := range c.At {
			x := find(q.checkpoints, at)
			if x == nil && at > q.intact {
				continue // the entry frees it
			}
			if x == nil {
				_, overwritten := divide(q.cache.State(0, at, at+m.o.Info.Rewind))
				var err error
				if x, err = m.newCheckpoint(c.Seq, at, overwritten.Bytes()); err != nil {
					return err
				}
				change.taken = append(change.taken, x)
				if err := m.copy(x.section(), overwritten); err != nil {
					return err
				}
			}
			change.after = append(change.after, x)
		}
	}
	return nil
}

// newCheckpoint charges a sequence for a checkpoint and allocates it. Its error is a
// model.MemoryError.
func (m *Model[C]) newCheckpoint(id model.SeqID, length int, bytes int64) (*checkpoint, error) {
	if err := m.affords(id, m.CheckpointBytes()); err != nil {
		return nil, err
	}
	c := &checkpoint{length: length, users: 1}
	if bytes > 0 {
		var err error
		if c.memory, err = m.o.Backend.Alloc(int(bytes)); err != nil {
			return nil, fmt.Errorf("%w: checkpoint at %d: %w", &model.MemoryError{Seq: id}, length, err)
		}
	}
	m.charged += m.CheckpointBytes()
	return c, nil
}

// release takes checkpoints away from one sequence, and frees those that no other has.
func (m *Model[C]) release(list []*checkpoint) {
	for _, c := range list {
		m.charged -= m.CheckpointBytes()
		if c.users--; c.users == 0 && len(c.memory) > 0 {
			m.o.Backend.Free(c.memory)
		}
	}
}

// reserveForks makes the sequences of the forks of a checked step, without their state, with
// room for the positions that the step names.
func (m *Model[C]) reserveForks(step model.Step, is map[model.SeqID]standing) error {
	for _, f := range step.Forks {
		length := f.Length
		for _, e := range step.Entries {
			if e.Seq == f.Seq {
				length = max(length, e.Pos+len(e.Tokens))
			}
		}
		if _, err := m.reserve(f.Seq, length); err != nil {
			return err
		}
		change := &change[C]{q: m.sequences[f.Seq]}
		for _, c := range m.checkpointsAfter(f.From) {
			if c.length <= is[f.Seq].length {
				change.after = append(change.after, c)
			}
		}
		more := m.CheckpointBytes() * int64(len(change.after))
		if err := m.affords(f.Seq, more); err != nil {
			return err
		}
		m.charged += more
		for _, c := range change.after {
			c.users++
		}
		change.taken = change.after
		m.changes[f.Seq] = change
	}
	return nil
}

// checkpointsAfter returns the checkpoints that a sequence has from the prepared step on.
func (m *Model[C]) checkpointsAfter(id model.SeqID) []*checkpoint {
	if c := m.changes[id]; c != nil {
		return c.after
	}
	return m.sequences[id].checkpoints
}

// makeForks copies the state of the forks of a checked step; is has their standings.
func (m *Model[C]) makeForks(step model.Step, is map[model.SeqID]standing) error {
	for _, f := range step.Forks {
		change, from, fork := m.changes[f.Seq], m.sequences[f.From], is[f.Seq]
		change.fork = &fork
		if m.holds(f, fork) {
			continue
		}
		grown, overwritten := divide(state(from.cache, fork, 0, fork.length))
		toGrown, toOverwritten := divide(state(change.q.cache, fork, 0, fork.length))
		switch {
		case f.Replay:
			overwritten, toOverwritten = snapshot.Section{}, snapshot.Section{}
		case !m.near(from.standing, fork.length):
			overwritten = find(change.after, fork.length).section()
		}
		if err := cmp.Or(m.copy(toGrown, grown), m.copy(toOverwritten, overwritten)); err != nil {
			return err
		}
		change.q.copied = copied[C]{from, from.commits, fork}
	}
	return nil
}

// state is what the cache of a sequence has of the positions [from, length), and in a replay
// also the history beyond the windows of those that run again.
func state[C Cache](cache C, is standing, from, length int) []snapshot.Section {
	list := cache.State(from, length, is.peak)
	if is.replayed > length {
		for i, s := range cache.State(from, is.replayed, is.replayed) {
			if !s.Overwritten {
				list[i] = s
			}
		}
	}
	return list
}

// divide joins the sections of a state that only grow into one, and those that later tokens
// overwrite into another.
func divide(state []snapshot.Section) (grown, overwritten snapshot.Section) {
	for _, s := range state {
		if s.Overwritten {
			overwritten.Parts = append(overwritten.Parts, s.Parts...)
		} else {
			grown.Parts = append(grown.Parts, s.Parts...)
		}
	}
	return grown, overwritten
}

// copy copies memory of the backend, but not on one that only measures or records. The error
// is the backend's.
func (m *Model[C]) copy(to, from snapshot.Section) error {
	if !kernels.ValuesMatter(m.o.Backend) {
		return nil
	}
	return snapshot.Copy(to, from, func(to, from []byte) error { return kernels.Copy(m.o.Backend, to, from) })
}

// apply commits what the prepared step changes in a sequence, apart from its entry.
func (m *Model[C]) apply(id model.SeqID) {
	c := m.changes[id]
	if c == nil {
		return
	}
	delete(m.changes, id)
	if c.fork != nil {
		c.q.standing = *c.fork
	}
	gone := slices.DeleteFunc(slices.Clone(c.q.checkpoints), func(x *checkpoint) bool { return slices.Contains(c.after, x) })
	c.q.checkpoints = c.after
	m.release(gone)
}

// forgo gives up what the prepared step changes in a sequence, apart from its entry, and
// discard does so for all sequences.
func (m *Model[C]) forgo(id model.SeqID) {
	if c := m.changes[id]; c != nil {
		m.release(c.taken)
		delete(m.changes, id)
	}
}

func (m *Model[C]) discard() {
	for id := range m.changes {
		m.forgo(id)
	}
}

// freeBeyond frees the checkpoints of a sequence at more than length positions.
func (m *Model[C]) freeBeyond(q *sequence[C], length int) {
	i := slices.IndexFunc(q.checkpoints, func(c *checkpoint) bool { return c.length > length })
	if i < 0 {
		return
	}
	m.release(q.checkpoints[i:])
	q.checkpoints = slices.Clip(q.checkpoints[:i])
}
