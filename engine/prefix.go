package engine

import (
	"slices"

	"ringmaster/engine/diskcache"
	"ringmaster/model"
)

// The tokens of a prompt that need not run. A request searches the sequences of the prefix
// cache and of running requests. If the prompt continues an entry, it takes the sequence of
// that entry; otherwise it begins with a fork, and the source stays for other requests. If
// it shares more with a prefill that has not ended, it waits for that.

// hit is a prefix of a prompt that a sequence has, or a snapshot on disk.
type hit struct {
	saved   *diskcache.Entry // the snapshot; the other fields are then zero
	from    *sequence        // nil: none
	entry   *entry           // of the sequence; nil: a running request has it
	n       int              // tokens
	inPlace bool             // the request takes the sequence of the entry
	// replayed is the length of the fork if it begins with n tokens and runs the others again,
	// else 0.
	replayed int
}

// Hits counts the requests that did not run all of their prompt, by what saved it. A
// request that forks what was restored for it counts as both.
type Hits struct {
	Continued uint64 // they took the sequence of an entry of the prefix cache
	Forked    uint64 // they began with a fork of an entry or of a running request
	Replayed  uint64 // they began with such a fork and ran its last tokens again, because no checkpoint was near
	Restored  uint64 // a snapshot on disk was restored for them
	Waited    uint64 // they waited for the prefill of another request, whatever saved tokens then
}

// leastKept is the fewest tokens that a request would cut off an entry for which it forks
// the sequence instead. A request never cuts off more than it continues.
const leastKept = 16

// findPrefix finds the sequence of t's scope that saves most of its prompt. One token of
// the prompt always runs, because its logits are needed. Running tokens again costs half of
// what the same number costs otherwise, or less, so it counts as running them.
func (s *scheduler) findPrefix(t *task) (best hit) {
	if t.allRows {
		return best
	}
	t.forgetMatches(len(s.prefixCache) + len(s.active))
	look := func(q *sequence, most int, k *entry) {
		least := best.n + 1
		if k != nil && !best.inPlace && len(q.tokens)-best.n < leastKept {
			least = best.n
		}
		// One token shows that most sequences save no more. Comparing whole prefixes would
		// be slow while many long prompts wait.
		least, most = s.reusableFrom(q, least), min(most, len(t.prompt)-1)
		if most < least || q.tokens[least-1] != t.prompt[least-1] {
			return
		}
		equal := min(t.match(q), most)
		n, again := s.reusable(q, equal)
		tail := len(q.tokens) - n
		inPlace := k != nil && tail < leastKept && tail <= n && q.has(n, s.rewind)
		if n < s.leastShared && !inPlace {
			return // a beginning that all conversations have shows no use of the sequence
		}
		if n > best.n || n == best.n && n > 0 && inPlace && !best.inPlace {
			if best = (hit{from: q, entry: k, n: n, inPlace: inPlace}); again {
				best.replayed = equal
			}
		}
	}
	for _, k := range s.prefixCache {
		if k.scope == t.scope {
			look(k.sequence, len(k.tokens), k)
		}
	}
	for _, a := range s.active {
		if a.scope == t.scope && !a.spoiled && a.fork == nil && a.restore == nil {
			look(a.sequence, a.pos, nil) // a rewind may have begun
		}
	}
	return best
}

// match is what a request knows about a sequence: its first n tokens are those of the
// prompt. cuts is that of the sequence when they were compared.
type match struct {
	n, cuts int
	differs bool // the next token is another one
}

// match returns how many tokens at the beginning of a sequence are those of t's prompt. It
// compares only new tokens, because a request that waits asks in every plan.
func (t *task) match(q *sequence) int {
	m := t.matches[q.seq]
	if m.cuts != q.cuts {
		m = match{cuts: q.cuts}
	}
	if !m.differs {
		m.n += commonPrefix(q.tokens[m.n:], t.prompt[m.n:])
		m.differs = m.n < min(len(q.tokens), len(t.prompt))
		if t.matches == nil {
			t.matches = map[model.SeqID]match{}
		}
		t.matches[q.seq] = m
	}
	return m.n
}

// forgetMatches bounds what t remembers of sequences and requests, which may no longer
// exist. sequences is how many sequences exist, those of active requests among them.
func (t *task) forgetMatches(sequences int) {
	if len(t.matches) > 2*sequences {
		t.matches = nil
	}
	if len(t.shared) > 2*sequences {
		t.shared = nil
	}
}

// awaits reports whether a waiting request should wait for the prefill of another one of
// its scope: the other will have at least leastShared more tokens of its prompt than the n
// that a committed sequence has. If both ran these tokens, both would end later, because
// they would share the steps.
func (s *scheduler) awaits(t *task, n int) bool {
	return !t.allRows && slices.ContainsFunc(s.active, func(a *task) bool {
		if a.scope != t.scope || a.decode || a.cancelled || a.spoiled || a.pos < n && a.restore == nil {
			return false
		}
		return s.willHave(a, t.common(a), n) >= n+s.leastShared
	})
}

// willHave returns the greatest length, at most shared, at which the sequence of a can be
// forked before its prefill ends. It makes a take a checkpoint at shared if the next lower
// one, or least, is at least leastShared tokens below it.
func (s *scheduler) willHave(a *task, shared, least int) int {
	switch {
	case a.restore != nil:
		return min(shared, a.foundReuse)
	case s.anywhere || shared >= len(a.prompt)-s.rewind:
		return shared
	}
	has := 0
	for _, n := range a.want {
		if n <= shared && (n >= a.pos || slices.Contains(a.checkpoints, n)) {
			has = n
		}
	}
	if shared >= a.pos && shared-max(has, least) >= s.leastShared && s.wantAlso(a, shared) {
		has = shared
	}
	return has
}

// common returns how many tokens at the beginning of both prompts are the same. The last
// token of t's prompt does not count, because it must run.
func (t *task) common(a *task) int {
	n, ok := t.shared[a.id]
	if !ok {
		n = min(commonPrefix(a.prompt, t.prompt), len(t.prompt)-1)
		if t.shared == nil {
			t.shared = map[requestID]int{}
		}
		t.shared[a.id] = n
	}
	return n
}

// pending is the fork that a request begins with, until its step is committed.
type pending struct {
	from     *sequence
	n        int  // tokens
	replayed int  // as in a hit
	inFlight bool // the step in flight makes it
}

// begin makes a request begin with what a hit saves.
func (s *scheduler) begin(t *task, h hit) {
	t.pos, t.cached = h.n, h.n
	t.todo = t.prompt[h.n:]
	switch {
	case h.inPlace:
		s.hits.Continued++
		t.sequence, t.named = h.entry.sequence, true
		s.removeEntry(h.entry)
	case h.from != nil:
		if h.replayed > 0 {
			s.hits.Replayed++
		} else {
			s.hits.Forked++
		}
		t.fork = &pending{from: h.from, n: h.n, replayed: h.replayed}
		if t.forked = h.from; h.entry != nil {
			h.entry.hit, h.entry.since = true, s.now
		}
		fallthrough
	default:
		s.lastSeq++
		t.seq, t.partial, t.replayed = s.lastSeq, h.replayed, h.replayed
	}
}

// planForks adds the forks that requests begin with to a step.
func (s *scheduler) planForks(step *model.Step) {
	for _, t := range s.active {
		if t.fork == nil || t.cancelled {
			continue
		}
		t.named, t.fork.inFlight = true, true
		s.mem.name(t.seq, max(t.fork.n, t.fork.replayed))
		checkpoints := t.fork.from.checkpoints
		if t.fork.from.planned != nil {
			checkpoints = t.fork.from.planned
		}
		t.planned = upTo(checkpoints, t.fork.n)
		s.mem.nameCheckpoints(t.seq, len(t.planned))
		step.Forks = append(step.Forks, model.Fork{Seq: t.seq, From: t.fork.from.seq, Length: max(t.fork.n, t.fork.replayed), Replay: t.fork.replayed > 0})
	}
}

// commitForks records that the forks of the step in flight are committed; their
// checkpoints are still planned.
func (s *scheduler) commitForks() {
	for _, t := range s.active {
		if f := t.fork; f != nil && f.inFlight {
			t.tokens, t.peak = slices.Clone(f.from.tokens[:f.n]), f.from.forkPeak(f.n, f.replayed, s.rewind)
			t.fork = nil
		}
	}
}

// unfork makes requests run their whole prompts if they would begin with a fork of a
// sequence that no longer exists.
func (s *scheduler) unfork(gone func(*sequence) bool) {
	for _, t := range s.active {
		if t.fork != nil && gone(t.fork.from) {
			t.fork, t.forked, t.pos, t.cached, t.todo = nil, nil, 0, 0, t.prompt
			t.partial, t.replayed = 0, 0
		}
	}
}
