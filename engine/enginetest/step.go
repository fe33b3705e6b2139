package enginetest

import (
	"fmt"
	"maps"
	"slices"

	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// name records that a step names sequences and lengths; mu is held. From then on a real
// model might hold memory for them, whether or not the step succeeds.
func (m *Model) name(s model.Step) {
	named := func(id model.SeqID, length int) {
		h := m.known[id]
		h.length = max(h.length, length)
		m.known[id] = h
	}
	for _, f := range s.Forks {
		named(f.Seq, f.Length)
	}
	for _, e := range s.Entries {
		named(e.Seq, e.Pos+len(e.Tokens))
	}
}

// prepare checks a step against the rules of package model, and returns the sequences
// that it changes as its Commit would leave them, without its drops; mu is held.
func (m *Model) prepare(s model.Step) (next map[model.SeqID]*sequence, err error) {
	if m.closed {
		return nil, fmt.Errorf("the model is closed")
	}
	dropping := map[model.SeqID]bool{}
	for _, id := range s.Drop {
		if dropping[id] || m.dropped[id] {
			return nil, fmt.Errorf("sequence %d dropped twice", id)
		}
		dropping[id] = true
	}
	next = map[model.SeqID]*sequence{}
	for _, c := range s.Checkpoints {
		if next[c.Seq] != nil {
			return nil, fmt.Errorf("sequence %d has its checkpoints named twice in a step", c.Seq)
		}
		if next[c.Seq], err = m.checkpoint(c, dropping); err != nil {
			return nil, err
		}
	}
	forks := map[model.SeqID]*sequence{}
	for _, f := range s.Forks {
		if forks[f.Seq] != nil {
			return nil, fmt.Errorf("sequence %d is forked twice in a step", f.Seq)
		}
		from := next[f.From] // with the checkpoints of this step
		if from == nil {
			from = m.seqs[f.From]
		}
		if forks[f.Seq], err = m.fork(f, from, dropping); err != nil {
			return nil, err
		}
	}
	maps.Copy(next, forks)
	total := 0
	entered := map[model.SeqID]bool{}
	for _, e := range s.Entries {
		q := next[e.Seq]
		if q == nil {
			q = m.seqs[e.Seq]
		}
		if q == nil {
			q = &sequence{}
		}
		switch {
		case entered[e.Seq] || dropping[e.Seq]:
			return nil, fmt.Errorf("sequence %d twice in a step", e.Seq)
		case forks[e.Seq] != nil && e.Pos == 0:
			return nil, fmt.Errorf("sequence %d at position 0, but the step forks it at %d", e.Seq, len(q.tokens))
		}
		if err := m.entry(e, q); err != nil {
			return nil, err
		}
		entered[e.Seq] = true
		next[e.Seq] = m.extend(e, q)
		total += len(e.Tokens)
	}
	if total > m.opts.MaxTokens {
		return nil, fmt.Errorf("%d tokens in a step, at most %d are allowed", total, m.opts.MaxTokens)
	}
	return next, nil
}

// checkpointsIn rejects lengths of checkpoints that no sequence of the given length has.
func checkpointsIn(at []int, length int) error {
	for i, n := range at {
		if n < 1 || n > length || i > 0 && n <= at[i-1] {
			return fmt.Errorf("checkpoints at %v of %d tokens, they must be positive and ascending", at, length)
		}
	}
	return nil
}

// checkpoint returns a committed sequence with other checkpoints; mu is held.
func (m *Model) checkpoint(c model.Checkpoints, dropping map[model.SeqID]bool) (*sequence, error) {
	old := m.seqs[c.Seq]
	switch {
	case dropping[c.Seq] || m.dropped[c.Seq]:
		return nil, fmt.Errorf("sequence %d has checkpoints at %v, but it is dropped", c.Seq, c.At)
	case old == nil:
		return nil, fmt.Errorf("sequence %d has checkpoints at %v, but it is unknown", c.Seq, c.At)
	}
	if len(c.At) > snapshot.MaxCheckpoints {
		return nil, fmt.Errorf("sequence %d has %d checkpoints, at most %d are possible", c.Seq, len(c.At), snapshot.MaxCheckpoints)
	}
	if err := checkpointsIn(c.At, len(old.tokens)); err != nil {
		return nil, fmt.Errorf("sequence %d: %w", c.Seq, err)
	}
	for _, n := range c.At {
		if !slices.Contains(old.checkpoints, n) && old.partial > 0 {
			return nil, fmt.Errorf("sequence %d with a checkpoint at %d, but it is partial up to %d", c.Seq, n, old.partial)
		}
		if !slices.Contains(old.checkpoints, n) && old.peak-n > m.opts.Rewind {
			return nil, fmt.Errorf("sequence %d with a checkpoint at %d, its greatest length is %d, at most %d less is allowed", c.Seq, n, old.peak, m.opts.Rewind)
		}
	}
	q := *old
	q.checkpoints = slices.Clone(c.At)
	return &q, nil
}

// fork returns a new sequence; from is nil for an unknown one; mu is held.
func (m *Model) fork(f model.Fork, from *sequence, dropping map[model.SeqID]bool) (*sequence, error) {
	switch {
	case dropping[f.Seq] || m.dropped[f.Seq]:
		return nil, fmt.Errorf("sequence %d is a fork, but it is dropped", f.Seq)
	case m.group.gone[f.Seq]:
		return nil, fmt.Errorf("sequence %d is a fork, but it was lost", f.Seq)
	case m.seqs[f.Seq] != nil:
		return nil, fmt.Errorf("sequence %d is a fork, but it exists", f.Seq)
	case from == nil:
		return nil, fmt.Errorf("sequence %d is a fork of %d, which is unknown", f.Seq, f.From)
	case f.Length < 1 || f.Length > len(from.tokens):
		return nil, fmt.Errorf("sequence %d is a fork of %d tokens of sequence %d, its length is %d", f.Seq, f.Length, f.From, len(from.tokens))
	}
	if f.Replay {
		begins := m.Info().Begins(f)
		if m.opts.Replay == 0 || begins < 1 {
			return nil, fmt.Errorf("sequence %d is a fork of %d tokens that runs the last %d again", f.Seq, f.Length, m.opts.Replay)
		}
		return &sequence{tokens: slices.Clone(from.tokens[:begins]), again: slices.Clone(from.tokens[:f.Length]), partial: f.Length,
			peak: begins + m.opts.Rewind, checkpoints: upTo(from.checkpoints, begins)}, nil
	}
	q := &sequence{tokens: slices.Clone(from.tokens[:f.Length]), peak: from.peak, checkpoints: upTo(from.checkpoints, f.Length)}
	if from.partial > 0 || from.peak-f.Length > m.opts.Rewind {
		if !slices.Contains(from.checkpoints, f.Length) {
			return nil, fmt.Errorf("sequence %d is a fork of %d tokens of sequence %d, its greatest length is %d, at most %d less is allowed, it is partial up to %d, and its checkpoints are at %v",
				f.Seq, f.Length, f.From, from.peak, m.opts.Rewind, from.partial, from.checkpoints)
		}
		q.peak = f.Length + m.opts.Rewind
	}
	return q, nil
}

// upTo returns the checkpoints at most at length.
func upTo(checkpoints []int, length int) []int {
	n := 0
	for n < len(checkpoints) && checkpoints[n] <= length {
		n++
	}
	return slices.Clone(checkpoints[:n])
}

// entry checks an entry that extends or rewinds q; mu is held.
func (m *Model) entry(e model.Entry, q *sequence) error {
	switch length := len(q.tokens); {
	case m.dropped[e.Seq]:
		return fmt.Errorf("sequence %d used after its drop", e.Seq)
	case m.group.gone[e.Seq]:
		return fmt.Errorf("sequence %d used after it was lost", e.Seq)
	case len(e.Tokens) == 0:
		return fmt.Errorf("sequence %d with no tokens", e.Seq)
	case e.Pos < 0 || e.Pos > length:
		return fmt.Errorf("sequence %d at position %d, its length is %d", e.Seq, e.Pos, length)
	case e.Pos > 0 && q.peak-e.Pos > m.opts.Rewind:
		return fmt.Errorf("sequence %d rewound from %d to %d, at most %d is allowed", e.Seq, q.peak, e.Pos, m.opts.Rewind)
	case e.Pos+len(e.Tokens) > m.opts.ContextLength:
		return fmt.Errorf("sequence %d up to %d, the context is %d", e.Seq, e.Pos+len(e.Tokens), m.opts.ContextLength)
	}
	switch end := e.Pos + len(e.Tokens); {
	case e.Until < 0 || e.Until > m.opts.ContextLength || e.Until > 0 && m.opts.Tail == 0:
		return fmt.Errorf("sequence %d up to %d, the context is %d and the model leaves out what is before the last %d", e.Seq, e.Until, m.opts.ContextLength, m.opts.Tail)
	case e.Until > 0 && (e.Want == model.WantAll || e.Want == model.WantLast && end < e.Until):
		return fmt.Errorf("sequence %d wants logits at %d, before %d", e.Seq, end, e.Until)
	case e.Pos > 0 && e.Until < q.partial:
		return fmt.Errorf("sequence %d at %d up to %d, but it is partial up to %d", e.Seq, e.Pos, e.Until, q.partial)
	}
	if q.again != nil && e.Pos > 0 {
		if e.Pos != len(q.tokens) {
			return fmt.Errorf("sequence %d at position %d, but it runs tokens again from %d on", e.Seq, e.Pos, len(q.tokens))
		}
		if n := min(len(q.again)-e.Pos, len(e.Tokens)); !slices.Equal(e.Tokens[:n], q.again[e.Pos:e.Pos+n]) {
			return fmt.Errorf("sequence %d runs other tokens at position %d than its source had", e.Seq, e.Pos)
		}
	}
	for _, t := range e.Tokens {
		if t < 0 || int(t) >= m.vocab {
			return fmt.Errorf("sequence %d with token %d of %d", e.Seq, t, m.vocab)
		}
	}
	return nil
}

// extend returns a sequence as an entry would leave it.
func (m *Model) extend(e model.Entry, old *sequence) *sequence {
	q := *old
	q.before = old
	if e.Pos == 0 {
		q.peak = 0
	}
	q.tokens = append(slices.Clone(q.tokens[:e.Pos]), e.Tokens...)
	q.peak = max(q.peak, len(q.tokens))
	if e.Pos == 0 || len(q.tokens) >= len(q.again) {
		q.again = nil
	}
	q.partial = m.Info().WholeAt(e.Until, len(q.tokens), len(q.again))
	q.checkpoints = upTo(q.checkpoints, e.Pos)
	if m.opts.Say == nil || e.Want == model.WantNone {
		return &q
	}
	// The certain token continues the answer, also with right guesses behind it. Any other
	// entry that wants logits is the end of a prompt and begins a new answer.
	if n := len(e.Tokens); (n == 1 || e.Want == model.WantAll) && q.continues(e, n) {
		q.said += n
	} else {
		q.answer, q.said = m.opts.Say(slices.Clone(q.tokens)), 1
	}
	q.at = len(q.tokens)
	return &q
}

// continues reports whether the first n tokens of an entry continue the answer.
func (q *sequence) continues(e model.Entry, n int) bool {
	said := *q
	if q.at == 0 || e.Pos != q.at {
		return false
	}
	for _, id := range e.Tokens[:n] {
		if id != said.certain() {
			return false
		}
		said.said++
	}
	return true
}

// held returns the bytes of all sequences with those that a step changes; mu is held. A
// checkpoint that the step frees counts until its Commit.
func (m *Model) held(next map[model.SeqID]*sequence) (n int64) {
	for id, h := range m.known {
		checkpoints := h.checkpoints
		if q := next[id]; q != nil {
			var had []int
			if old := m.seqs[id]; old != nil {
				had = old.checkpoints
			}
			for _, at := range q.checkpoints {
				if !slices.Contains(had, at) {
					checkpoints++
				}
			}
		}
		n += m.SequenceBytes(h.length) + int64(checkpoints)*m.opts.CheckpointBytes
	}
	return n
}

// fits refuses the fork or entry that exceeds the memory limit; mu is held. Drop makes
// room at Commit only, as in a real model.
func (m *Model) fits(s model.Step) error {
	if m.opts.MemoryLimit == 0 {
		return nil
	}
	length := map[model.SeqID]int{}
	used := 0
	for id, q := range m.seqs {
		length[id] = len(q.tokens)
		used += len(q.tokens)
	}
	grow := func(id model.SeqID, to int) error {
		used += to - length[id]
		length[id] = to
		if used > m.opts.MemoryLimit {
			return &model.MemoryError{Seq: id, Need: int64(used), Have: int64(m.opts.MemoryLimit)}
		}
		return nil
	}
	for _, f := range s.Forks {
		if err := grow(f.Seq, f.Length); err != nil {
			return err
		}
	}
	for _, e := range s.Entries {
		if err := grow(e.Seq, e.Pos+len(e.Tokens)); err != nil {
			return err
		}
	}
	return nil
}

// cloneStep returns a deep copy with nil for what is empty.
func cloneStep(s model.Step) model.Step {
	c := model.Step{Drop: append([]model.SeqID(nil), s.Drop...), Forks: append([]model.Fork(nil), s.Forks...)}
	for _, at := range s.Checkpoints {
		at.At = append([]int(nil), at.At...)
		c.Checkpoints = append(c.Checkpoints, at)
	}
	for _, e := range s.Entries {
		e.Tokens = slices.Clone(e.Tokens)
		c.Entries = append(c.Entries, e)
	}
	return c
}
