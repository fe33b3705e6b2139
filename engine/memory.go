package engine

import (
	"cmp"
	"maps"
	"slices"

	"ringmaster/model"
)

// The scheduler accounts for the KV caches that the model holds, so that no step
// exceeds the model's budget (model.Sized):
//
//   - A request is admitted when the memory of its prompt and its max_tokens is
//     free, and keeps it until it ends. Without max_tokens only its prompt counts.
//     Log-probabilities count too, because they take many times the bytes of a token.
//   - A sequence that grows beyond that is charged before the step that needs it.
//   - What is not free is taken from the prefix cache, the entries of least value
//     first. A dropped sequence is free once the step that drops it is committed.
//   - A sequence that cannot grow waits for others to end, and no request is admitted
//     meanwhile. When all wait for each other, the newest fails.

// memory is the account.
type memory struct {
	size   func(length int) int64 // model.Sized.SequenceBytes; nil: nothing is counted
	budget int64                  // bytes of all sequences; 0: no limit

	checkpoint  int64               // bytes of one checkpoint, model.Sized.CheckpointBytes
	checkpoints map[model.SeqID]int // number by sequence, with those that the step in flight takes
	held        map[model.SeqID]int // greatest length that a step has named, by sequence that is not dropped
	short       map[*task]bool      // their sequences could not grow in the last plan
	failed      []requestID         // removed for lack of memory since the owner last took them
	counts      memoryCounts
}

// memoryCounts are totals since the start.
type memoryCounts struct {
	evicted uint64 // entries of the prefix cache that made room
	crowded uint64 // entries that gave their places to others
	// evictedTokens counts the tokens of the entries that others took the memory or the
	// places of.
	evictedTokens uint64
	expired       uint64 // entries of the prefix cache that expired
	failed        uint64 // requests that failed for lack of memory
}

// limited reports whether there is a budget.
func (m *memory) limited() bool { return m.size != nil && m.budget > 0 }

// of returns the bytes that the model holds for a sequence.
func (m *memory) of(id model.SeqID) int64 {
	if m.size == nil {
		return 0
	}
	return m.size(m.held[id]) + int64(m.checkpoints[id])*m.checkpoint
}

// name records that a step names positions of a sequence up to length.
func (m *memory) name(id model.SeqID, length int) {
	if m.held == nil {
		m.held = map[model.SeqID]int{}
	}
	m.held[id] = max(m.held[id], length)
}

// nameCheckpoints records that a sequence has at least n checkpoints until the step in
// flight is committed.
func (m *memory) nameCheckpoints(id model.SeqID, n int) {
	m.haveCheckpoints(id, max(n, m.checkpoints[id]))
}

// haveCheckpoints records that a sequence has n checkpoints.
func (m *memory) haveCheckpoints(id model.SeqID, n int) {
	if m.checkpoints == nil {
		m.checkpoints = map[model.SeqID]int{}
	}
	m.checkpoints[id] = n
}

// charge returns the bytes that an active request counts with: what its sequence holds,
// or what was reserved at its admission.
func (m *memory) charge(t *task) int64 {
	return m.size(max(m.held[t.seq], t.reserve)) + int64(max(m.checkpoints[t.seq], t.room))*m.checkpoint + t.beside
}

// use returns the bytes of all sequences that the model holds plus what is reserved.
func (s *scheduler) use() (n int64) {
	if s.mem.size == nil {
		return 0
	}
	for id := range s.mem.held {
		n += s.mem.of(id)
	}
	for _, t := range s.active {
		n += s.mem.charge(t) - s.mem.of(t.seq)
	}
	return n
}

// canHold reports whether a sequence of length positions, plus beside bytes, fits the
// budget when it is alone.
func (s *scheduler) canHold(length int, beside int64) bool {
	return !s.mem.limited() || s.mem.size(length)+beside <= s.mem.budget
}

// canAdmit reports whether memory is free for a waiting request that begins with h and has
// reserve positions. If entries must be evicted for it, a later call admits it, after a step
// has dropped them. canAdmit chooses the checkpoints of the request's sequence. If these do
// not fit the budget even alone, the sequence has only those that the hit begins with, until
// the first step has freed them.
func (s *scheduler) canAdmit(t *task, h hit, reserve int) bool {
	var held []int
	lowest, room := 0, 0
	switch {
	case h.saved != nil:
		held = upTo(h.saved.Checkpoints(), t.foundReuse)
		lowest = h.saved.Peak() - s.rewind
		room = len(h.saved.Checkpoints())
	case h.from != nil:
		held = upTo(h.from.checkpoints, h.n)
		lowest = max(h.from.forkPeak(h.n, h.replayed, s.rewind)-s.rewind, h.replayed)
		room = s.beginsWith(h)
	}
	t.want = s.wanted(t, held, lowest)
	if t.room = room + len(t.want); !s.canHold(reserve, int64(t.room)*s.mem.checkpoint+t.beside) {
		t.want, t.room = nil, room
	}
	if !s.mem.limited() {
		return true
	}
	need := s.mem.size(reserve) + int64(t.room)*s.mem.checkpoint
	if h.inPlace {
		need = max(need-s.mem.of(h.from.seq), 0)
	}
	return s.makeRoom(need+t.beside, h.entry)
}

// beginsWith returns the most checkpoints that a request has after it began with a hit. A
// fork also gets the checkpoints that its step takes of the source.
func (s *scheduler) beginsWith(h hit) int {
	if h.inPlace {
		return len(h.from.checkpoints)
	}
	n := len(upTo(h.from.checkpoints, h.n))
	for _, a := range s.active {
		if a.sequence == h.from {
			n = max(n, len(upTo(s.checkpointsOf(a), h.n)))
		}
	}
	return n
}

// makeRoom reports whether the bytes are free. If not, it evicts as many entries of the
// prefix cache as are needed, except keep; if all of them are not enough, none.
func (s *scheduler) makeRoom(bytes int64, keep *entry) bool {
	missing := bytes - (s.mem.budget - s.use())
	if missing <= 0 {
		return true
	}
	for _, id := range s.drop {
		missing -= s.mem.of(id)
	}
	for len(s.leaving) > 0 && missing > 0 {
		missing -= s.mem.of(s.leaving[0].seq)
		s.leave(0)
	}
	var evictable int64
	for _, k := range s.prefixCache {
		if k != keep {
			evictable += s.mem.of(k.seq)
		}
	}
	if evictable < missing {
		return false
	}
	for _, k := range s.victims(missing, keep) {
		s.mem.counts.evicted++
		s.evict(k)
	}
	return false
}

// grow charges the memory of a part of the next step, or reports that the part has to
// wait.
func (s *scheduler) grow(p part) bool {
	t, end := p.task, p.pos+p.n
	if s.mem.limited() {
		more := s.mem.size(max(end, t.reserve)) - s.mem.size(max(s.mem.held[t.seq], t.reserve))
		if more > 0 && !s.makeRoom(more, nil) {
			s.mem.short[t] = true
			return false
		}
	}
	s.mem.name(t.seq, end)
	return true
}

// failShort removes a request when nothing can run for lack of memory: the newest of those
// that could not grow, or if there are none the next in turn, which does not even fit alone.
func (s *scheduler) failShort() {
	if !s.mem.limited() || len(s.parts) > 0 || len(s.drop) > 0 || s.toRestore() != nil {
		return
	}
	var t *task
	switch {
	case len(s.mem.short) > 0:
		t = slices.MaxFunc(slices.Collect(maps.Keys(s.mem.short)), func(a, b *task) int { return cmp.Compare(a.id, b.id) })
		s.remove(t)
		if t.named {
			s.drop = append(s.drop, t.seq)
		}
	case len(s.active) == 0 && len(s.queue) > 0:
		t = s.nextWaiting()
		s.queue = slices.DeleteFunc(s.queue, func(u *task) bool { return u == t })
	default:
		return
	}
	s.mem.counts.failed++
	s.mem.failed = append(s.mem.failed, t.id)
}

// dropped records that the model has dropped the sequences of s.drop.
func (s *scheduler) dropped() {
	for _, id := range s.drop {
		delete(s.mem.held, id)
		delete(s.mem.checkpoints, id)
	}
}

// lost records that the model has lost all sequences except perhaps those of s.drop.
func (s *scheduler) lost() {
	gone := func(id model.SeqID, _ int) bool { return !slices.Contains(s.drop, id) }
	maps.DeleteFunc(s.mem.held, gone)
	maps.DeleteFunc(s.mem.checkpoints, gone)
}
