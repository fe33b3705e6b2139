package engine

import (
	"slices"

	"ringmaster/model"
)

// Sequences get checkpoints where other requests are likely to fork them: at the branches of
// a request (Request.Branches), at the end of its prompt, and every checkpointDistance
// tokens of a long prompt, except of a model that forks anywhere by a replay. A sequence
// keeps the first branch, because that is the end of what its client always sends. The
// distances of the others grow towards the beginning, so a fork runs few tokens again
// compared with those that follow its checkpoint.

const (
	maxCheckpoints     = 8 // that a request chooses; requests that wait for it add as many
	checkpointDistance = 4096
	// leastShared is the fewest tokens for which a checkpoint is taken, a fork made or
	// another request's prefill awaited.
	leastShared = 32
)

// wanted returns the lengths at which a request's sequence should have checkpoints,
// ascending. It chooses among held, the checkpoints that the sequence begins with, and the
// lengths of the prompt from lowest on, the least at which it can still take one.
func (s *scheduler) wanted(t *task, held []int, lowest int) []int {
	if s.anywhere {
		return nil
	}
	last := len(t.prompt) - 1
	all := slices.Concat(held, t.branches)
	if !slices.ContainsFunc(t.branches, func(n int) bool { return n <= last && n >= last-2*leastShared }) {
		all = append(all, last)
	}
	for n := checkpointDistance; n < last && s.replay == 0; n += checkpointDistance {
		all = append(all, n)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(n int) bool {
		_, has := slices.BinarySearch(held, n)
		return n < s.leastShared || n > last || n < lowest && !has
	})
	if len(all) == 0 {
		return nil
	}
	first := all[0]
	if len(t.branches) > 0 && slices.Contains(all, t.branches[0]) {
		first = t.branches[0]
	}
	before := all[len(all)-1]
	chosen := []int{before}
	for _, n := range slices.Backward(all) {
		if len(chosen) < maxCheckpoints-1 && before-n >= max(s.leastShared, 2*(last-before)) {
			chosen, before = append(chosen, n), n
		}
	}
	chosen = append(chosen, first)
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// wantAlso makes a request take one more checkpoint, for another one that waits for it. It
// reports whether the request will: not if the model has left out what the checkpoint needs,
// it has too many or memory is short.
func (s *scheduler) wantAlso(t *task, n int) bool {
	if n < t.partial || len(t.want) >= 2*maxCheckpoints || s.mem.limited() && s.use()+s.mem.checkpoint > s.mem.budget {
		return false
	}
	i, found := slices.BinarySearch(t.want, n)
	if !found {
		t.want = slices.Insert(t.want, i, n)
		t.room++
	}
	return true
}

// until returns the length up to which a prompt runs without logits or checkpoints in
// between, for a model that can then leave rows out; 0 if there is none.
func (s *scheduler) until(t *task) int {
	if s.tail == 0 || t.allRows {
		return 0
	}
	for _, n := range t.want {
		if n > t.pos {
			return n
		}
	}
	return len(t.prompt)
}

// reach shortens a chunk of n tokens of a prompt so that the next checkpoint can still be
// taken after it.
func (s *scheduler) reach(t *task, n int) int {
	for _, at := range t.want {
		if at > t.pos && t.pos+n-at > s.rewind {
			return at - t.pos
		}
	}
	return n
}

// planCheckpoints adds to a step the checkpoints that its requests take, and frees those
// that they no longer want.
func (s *scheduler) planCheckpoints(step *model.Step) {
	for _, p := range s.parts {
		t := p.task
		if t.fork != nil {
			continue
		}
		at := s.checkpointsOf(t)
		if slices.Equal(at, t.checkpoints) {
			continue
		}
		taken := slices.DeleteFunc(slices.Clone(at), func(n int) bool { return slices.Contains(t.checkpoints, n) })
		s.mem.nameCheckpoints(t.seq, len(t.checkpoints)+len(taken))
		t.planned = at
		step.Checkpoints = append(step.Checkpoints, model.Checkpoints{Seq: t.seq, At: at})
	}
}

// checkpointsOf returns the lengths, ascending, of the checkpoints that a request's sequence
// has after the next step: those that it wants and has or can take now, and those that forks
// of that step need.
func (s *scheduler) checkpointsOf(t *task) []int {
	at := []int{}
	for _, n := range t.want {
		if slices.Contains(t.checkpoints, n) || n <= min(t.pos, len(t.tokens)) && t.has(n, s.rewind) {
			at = append(at, n)
		}
	}
	for _, a := range s.active {
		if f := a.fork; f != nil && f.from == t.sequence && slices.Contains(t.checkpoints, f.n) && !slices.Contains(at, f.n) {
			at = append(at, f.n)
		}
	}
	slices.Sort(at)
	return at
}

// commitCheckpoints records that the checkpoints of the step in flight are taken.
func (s *scheduler) commitCheckpoints() {
	for _, t := range s.active {
		if t.planned != nil {
			t.checkpoints, t.planned = t.planned, nil
			s.mem.haveCheckpoints(t.seq, len(t.checkpoints))
		}
	}
}
