package decoder

import (
	"fmt"

	"ringmaster/model"
)

// sequence is one row of the table of sequences.
type sequence[C Cache] struct {
	standing
	cache       C
	checkpoints []*checkpoint // ascending
	commits     int           // steps that have extended or rewound it
	copied      copied[C]     // while it is a fork that is not committed
	room        int           // positions that the cache has room for
	charged     int64         // bytes that count against the budget, without checkpoints
	helper      int           // first positions of which the helper has the state of its layers
}

// standing bounds which positions a step can use of a sequence.
type standing struct {
	length int // committed tokens
	// peak is the greatest length since the sequence was last at 0. For a fork from a
	// checkpoint it is Info.Rewind more than its length, which may exceed the context.
	peak int
	// intact is the number of first positions that no step has overwritten: length, or less
	// after a rewind that ran and was not committed.
	intact int
	// partial is the least Until of the next entry, 0 of a sequence that is whole; see
	// model.Entry.
	partial int
	// replayed is the length up to which a fork with Replay runs tokens again, which its cache
	// has the history beyond the windows of; 0 once it has run them, and of other sequences.
	replayed int
}

// rewound is a sequence that the prepared step rewinds.
type rewound[C Cache] struct {
	q   *sequence[C]
	pos int
}

func (m *Model[C]) standing(id model.SeqID) standing {
	if q := m.sequences[id]; q != nil {
		return q.standing
	}
	return standing{}
}

// check checks the entries of a step; forks has the standings of its forks. It returns the
// number of rows.
func (m *Model[C]) check(step model.Step, forks map[model.SeqID]standing) (int, error) {
	info := m.o.Info
	seen := make(map[model.SeqID]bool, len(step.Entries))
	rows := 0
	for _, e := range step.Entries {
		// The greatest length bounds a rewind, not the current one, because two rewinds
		// in a row would otherwise reach twice as far back.
		is, fork := forks[e.Seq]
		if !fork {
			is = m.standing(e.Seq)
		}
		end := e.Pos + len(e.Tokens)
		switch {
		case len(e.Tokens) == 0:
			return 0, m.errorf("sequence %d: entry without tokens", e.Seq)
		case seen[e.Seq]:
			return 0, m.errorf("sequence %d: twice in one step", e.Seq)
		case e.Pos < 0 || e.Pos > is.length:
			return 0, m.errorf("sequence %d: tokens at position %d, but it has %d", e.Seq, e.Pos, is.length)
		case e.Pos > is.intact:
			return 0, m.errorf("sequence %d: tokens at position %d; %s", e.Seq, e.Pos, is.says())
		case is.peak-e.Pos > info.Rewind && e.Pos > 0:
			return 0, m.errorf("sequence %d: rewind from %d to %d; at most %d positions are possible", e.Seq, is.peak, e.Pos, info.Rewind)
		case is.replayed > 0 && e.Pos != is.length && e.Pos > 0:
			return 0, m.errorf("sequence %d: rewind from %d to %d, but it runs tokens again up to %d", e.Seq, is.length, e.Pos, is.replayed)
		case end > info.ContextLength:
			return 0, m.errorf("sequence %d: position %d is beyond the context of %d", e.Seq, end-1, info.ContextLength)
		case rows+len(e.Tokens) > info.MaxTokens:
			return 0, m.errorf("a step of more than %d tokens", info.MaxTokens)
		case e.Until < 0 || e.Until > info.ContextLength:
			return 0, m.errorf("sequence %d: it is to be extended to %d; the context has %d", e.Seq, e.Until, info.ContextLength)
		case e.Until > 0 && (e.Want == model.WantAll || e.Want == model.WantLast && end < e.Until):
			return 0, m.errorf("sequence %d: logits wanted before position %d, up to which it was to be extended without", e.Seq, e.Until)
		case e.Pos > 0 && e.Until < is.partial:
			return 0, m.errorf("sequence %d: tokens at position %d up to %d; it is partial up to %d", e.Seq, e.Pos, e.Until, is.partial)
		}
		seen[e.Seq] = true
		for t, id := range e.Tokens {
			if id < 0 || int(id) >= info.Vocab {
				return 0, m.errorf("sequence %d: token %d at position %d; the vocabulary has %d", e.Seq, id, e.Pos+t, info.Vocab)
			}
		}
		rows += len(e.Tokens)
	}
	return rows, nil
}

// wanted appends the rows for which logits are wanted of a piece of an entry that begins at
// row first.
func (p piece) wanted(rows []int32, e model.Entry, first int) []int32 {
	switch {
	case e.Want == model.WantAll:
		for t := range p.n {
			rows = append(rows, int32(first+t))
		}
	case e.Want == model.WantLast && p.at+p.n == len(e.Tokens):
		rows = append(rows, int32(first+p.n-1))
	}
	return rows
}

// reserve makes a sequence, if it is new, and room in it for length positions. It
// returns its KV cache. Errors are a model.MemoryError.
func (m *Model[C]) reserve(id model.SeqID, length int) (C, error) {
	var none C
	q := m.sequences[id]
	held := int64(0)
	if q != nil {
		held = q.charged
	}
	more := max(m.SequenceBytes(length)-held, 0)
	if err := m.affords(id, more); err != nil {
		return none, err
	}
	if q == nil {
		cache, err := m.network.NewCache()
		if err != nil {
			return none, fmt.Errorf("%w: %w", &model.MemoryError{Seq: id}, err)
		}
		q = &sequence[C]{cache: cache}
		m.sequences[id] = q
	}
	m.charged += more
	q.charged += more
	if length > q.room {
		if err := q.cache.Grow(length); err != nil {
			return none, fmt.Errorf("%w: %w", &model.MemoryError{Seq: id}, err)
		}
		q.room = length
	}
	return q.cache, nil
}

// affords checks that the budget has room for more bytes of a sequence. Its error is a
// model.MemoryError.
func (m *Model[C]) affords(id model.SeqID, more int64) error {
	if budget := m.o.Budget; budget > 0 && m.charged+more > budget {
		return &model.MemoryError{Seq: id, Need: more, Have: max(budget-m.charged, 0)}
	}
	return nil
}

// SequenceBytes implements model.Sized.
func (m *Model[C]) SequenceBytes(length int) int64 {
	m.spans.RLock()
	defer m.spans.RUnlock()
	n := m.network.CacheBytes(length)
	if m.drafter != nil {
		n += m.drafter.bytes(length)
	}
	return n
}

// CheckpointBytes implements model.Sized.
func (m *Model[C]) CheckpointBytes() int64 {
	m.spans.RLock()
	defer m.spans.RUnlock()
	return m.network.CheckpointBytes()
}

// SequenceBudget implements model.Sized.
func (m *Model[C]) SequenceBudget() int64 { return m.o.Budget }

// SetSequenceBudget replaces Options.Budget. It must not run during a step.
func (m *Model[C]) SetSequenceBudget(bytes int64) { m.o.Budget = bytes }

// Len implements model.Model.
func (m *Model[C]) Len(id model.SeqID) int {
	if q := m.sequences[id]; q != nil {
		return q.length
	}
	return 0
}

// Commit implements model.Model.
func (m *Model[C]) Commit(s model.Step) {
	helped := m.helped
	m.helped = nil
	if m.pipeline.helps() {
		m.commitHelp(s, helped)
		return
	}
	m.step = nil // it may have a KV cache that is dropped now
	m.o.Routed.CountChosen()
	for _, c := range s.Checkpoints {
		m.apply(c.Seq)
	}
	for _, f := range s.Forks {
		m.apply(f.Seq)
		if m.drafter != nil {
			m.drafter.fork(f)
		}
	}
	m.discard() // of another step
	if m.drafter != nil {
		m.drafter.note(m.ran, s)
		m.ran = nil
	}
	for _, e := range s.Entries {
		if q := m.sequences[e.Seq]; q != nil {
			if e.Pos == 0 {
				q.peak = 0
			}
			q.length = e.Pos + len(e.Tokens)
			q.intact, q.copied = q.length, copied[C]{}
			q.commits++
			if helped[e.Seq] {
				q.helper = q.length
			}
			q.peak = max(q.peak, q.length)
			if e.Pos == 0 || q.length >= q.replayed {
				q.replayed = 0
			}
			q.partial = m.o.Info.WholeAt(e.Until, q.length, q.replayed)
			m.freeBeyond(q, e.Pos)
		}
	}
	for _, id := range s.Drop {
		m.drop(id)
	}
}

// drop frees the KV cache and the checkpoints of a sequence, if it is known, and gives
// their bytes back to the budget.
func (m *Model[C]) drop(id model.SeqID) {
	if q := m.sequences[id]; q != nil {
		m.forgo(id)
		m.freeBeyond(q, 0)
		m.charged -= q.charged
		q.cache.Free()
		delete(m.sequences, id)
		if m.drafter != nil {
			m.drafter.forget(id)
		}
	}
}

func (m *Model[C]) dropAll() {
	for id := range m.sequences {
		m.drop(id)
	}
}
