package engine

import (
	"slices"
	"time"

	"ringmaster/engine/diskcache"
	"ringmaster/model"
)

// The scheduler's part of the prefix cache on disk: which requests wait for a snapshot,
// and which entries of the prefix cache must be saved.

// snapshots is what the scheduler needs of a *diskcache.Store.
type snapshots interface {
	Find(scope string, prompt []int32) (e *diskcache.Entry, reuse int)
	Version() uint64
}

// findOnDisk returns the snapshot that a prompt continues, if it saves enough tokens more
// than the prefix cache, which saves reuse, and if the budget could hold all of it.
func (s *scheduler) findOnDisk(t *task, reuse int) *diskcache.Entry {
	if s.disk == nil || t.allRows || t.cold {
		return nil
	}
	// A waiting request asks often, so it looks only when the store has changed.
	if v := s.disk.Version() + 1; t.lookedUp != v {
		t.lookedUp = v
		t.found, t.foundReuse = s.disk.Find(t.scope, t.prompt)
	}
	// A model that rewinds to any length finds long snapshots for short prefixes.
	// Restoring a token takes much less than running it, but not nothing.
	if t.found == nil || t.foundReuse-reuse < max(diskcache.MinTokens/2, t.found.Length()/32) {
		return nil
	}
	if !s.canHold(max(t.reserve, t.found.Length()), int64(len(t.found.Checkpoints()))*s.mem.checkpoint+t.beside) {
		return nil
	}
	return t.found
}

// restores reports whether a request still waits for a sequence to be restored.
func (s *scheduler) restores(id requestID, seq model.SeqID) bool {
	t := s.find(id)
	return t != nil && t.restore != nil && t.seq == seq && !t.cancelled
}

// toRestore returns the request to restore a snapshot for next, nil if there is none.
func (s *scheduler) toRestore() *task {
	for _, t := range s.active {
		if t.restore != nil && !t.cancelled {
			return t
		}
	}
	return nil
}

// restored is called when the sequence of a request has been restored. If its tokens are
// not the expected ones, the request runs its prompt. reuse is the number of tokens that
// need not run.
func (s *scheduler) restored(id requestID, tokens []int32, peak int, checkpoints []int) (reuse int, ok bool) {
	t := s.find(id)
	if t == nil || t.restore == nil {
		return 0, true
	}
	t.tokens, t.peak, t.checkpoints = tokens, peak, checkpoints
	s.mem.haveCheckpoints(t.seq, len(checkpoints))
	n, replay := s.reusable(t.sequence, min(commonPrefix(tokens, t.prompt), len(t.prompt)-1))
	if n < 1 {
		s.restoreFailed(id)
		return 0, false
	}
	s.hits.Restored++
	if t.restore = nil; !replay && peak-n <= s.rewind {
		t.pos, t.cached, t.todo = n, n, t.prompt[n:]
		return n, true
	}
	// The request forks the sequence, as soon as there is memory for both.
	s.remove(t)
	s.insert(&entry{sequence: t.sequence, scope: t.scope, since: s.now, id: t.id, hints: t.hints, hit: true, saved: true})
	t.sequence, t.named, t.cold, t.room, t.todo = &sequence{}, false, true, 0, nil
	s.queue = slices.Insert(s.queue, 0, t)
	s.trimCache()
	return n, true
}

// restoreFailed returns a request to the head of the queue, because what was restored holds
// memory until a step drops it. The request does not try the disk again.
func (s *scheduler) restoreFailed(id requestID) {
	t := s.find(id)
	if t == nil || t.restore == nil {
		return
	}
	s.remove(t)
	s.drop = append(s.drop, t.seq)
	t.sequence, t.named = &sequence{}, false
	t.restore, t.cold, t.room = nil, true, 0
	s.queue = slices.Insert(s.queue, 0, t)
}

// toSave returns the entry to save next: one that waits to be dropped before one that
// stays; nil if none is due. With all, age does not matter.
func (s *scheduler) toSave(all bool) *entry {
	if len(s.leaving) > 0 {
		return s.leaving[0]
	}
	var next *entry
	for _, k := range s.prefixCache {
		if !k.saved && (all || s.now.Sub(k.since) >= saveAfter) && (next == nil || s.value(k, s.prefixCache) > s.value(next, s.prefixCache)) {
			next = k
		}
	}
	return next
}

// untilSave returns the time until an entry must be saved; ok is false if none must.
func (s *scheduler) untilSave() (d time.Duration, ok bool) {
	if s.disk == nil {
		return 0, false
	}
	for _, k := range s.prefixCache {
		if left := saveAfter - s.now.Sub(k.since); !k.saved && left > 0 && (!ok || left < d) {
			d, ok = left, true
		}
	}
	return d, ok
}

// has reports whether the sequence of an entry is unchanged.
func (s *scheduler) has(k *entry) bool {
	return slices.Contains(s.prefixCache, k) || slices.Contains(s.leaving, k)
}

// saved records that an entry is on disk, or will never be.
func (s *scheduler) saved(k *entry) {
	k.saved = true
	if i := slices.Index(s.leaving, k); i >= 0 {
		s.leave(i)
	}
}

// leave makes the next step drop an entry that was to be saved first.
func (s *scheduler) leave(i int) {
	s.drop = append(s.drop, s.leaving[i].seq)
	s.leaving = slices.Delete(s.leaving, i, i+1)
}

// trimLeaving drops entries that wait to be saved when others need their places, because
// only unused places are theirs.
func (s *scheduler) trimLeaving() {
	for len(s.leaving) > 0 && len(s.leaving)+len(s.active)+len(s.prefixCache) > s.limits.active+s.cacheSize {
		s.leave(0)
	}
}
