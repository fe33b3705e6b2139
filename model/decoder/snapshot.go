package decoder

import (
	"fmt"
	"io"

	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// Snapshot writes the state of the committed tokens of a sequence, with the tokens
// [Len(id)], which the caller knows. It must not run during a step. The format is that
// of package snapshot. The error is w's, or says that the sequence does not have these
// tokens.
func (m *Model[C]) Snapshot(w io.Writer, id model.SeqID, tokens []int32) error {
	q := m.sequences[id]
	if q == nil || q.length == 0 || q.length != len(tokens) {
		return m.errorf("sequence %d: a snapshot with %d tokens, but it has %d", id, len(tokens), m.Len(id))
	}
	h := snapshot.Header{Model: m.o.Fingerprint, Layout: m.network.Layout(), Length: q.length, Peak: q.peak}
	return snapshot.Write(w, h, tokens, q.cache.State(q.length, q.peak))
}

// Restore makes the sequence id, which must be new, from a snapshot and returns its
// tokens. From then on it is as if it had run here: steps that continue it have the same
// bits, and it can be rewound as far. It must not run during a step. After an error the
// sequence does not exist; errors wrap one of package snapshot or model.ErrNoMemory, or
// say why the snapshot does not fit.
func (m *Model[C]) Restore(r io.Reader, id model.SeqID) ([]int32, error) {
	if m.sequences[id] != nil {
		return nil, m.errorf("sequence %d: it cannot be restored, for it exists", id)
	}
	x, err := snapshot.Read(r, m.o.Fingerprint, m.network.Layout(), m.o.Info.ContextLength)
	if err != nil {
		return nil, m.errorf("sequence %d: %w", id, err)
	}
	if x.Peak-x.Length > m.o.Info.Rewind {
		return nil, m.errorf("sequence %d: a snapshot %d positions behind the greatest length; at most %d are possible", id, x.Peak-x.Length, m.o.Info.Rewind)
	}
	for i, t := range x.Tokens {
		if t < 0 || int(t) >= m.o.Info.Vocab {
			return nil, m.errorf("sequence %d: token %d at position %d of the snapshot; the vocabulary has %d", id, t, i, m.o.Info.Vocab)
		}
	}
	if err := m.restore(x, id); err != nil {
		m.drop(id)
		return nil, err
	}
	return x.Tokens, nil
}

func (m *Model[C]) restore(x *snapshot.Reader, id model.SeqID) error {
	cache, err := m.reserve(id, x.Length)
	if err != nil {
		return m.errorf("%w", err)
	}
	sections := cache.State(x.Length, x.Peak)
	if err := x.Expect(sections); err != nil {
		return m.errorf("sequence %d: %w", id, err)
	}
	for _, s := range sections {
		if err := x.Section(s); err != nil {
			return m.errorf("sequence %d: %w", id, fmt.Errorf("the KV cache: %w", err))
		}
	}
	q := m.sequences[id]
	q.length, q.peak = x.Length, x.Peak
	return nil
}
