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
	if q := m.sequences[id]; q == nil || q.length != len(tokens) {
		return m.errorf("sequence %d: a snapshot with %d tokens, but it has %d", id, len(tokens), m.Len(id))
	}
	return m.SnapshotFrom(w, id, tokens, 0)
}

// StateBytes is about the bytes of the state that SnapshotFrom writes of tokens [from,
// length) of a sequence, without checksums and header.
func (m *Model[C]) StateBytes(id model.SeqID, from, length int) int64 {
	q := m.sequences[id]
	if q == nil || length > q.length || from > length {
		return 0
	}
	n := 4 * int64(length-from) // the tokens
	for _, s := range state(q.cache, q.standing, from, length) {
		n += s.Bytes()
	}
	for _, c := range q.checkpoints {
		if from < c.length && c.length <= length {
			n += int64(len(c.memory))
		}
	}
	return n
}

// SnapshotFrom is Snapshot of the first tokens of a sequence, or all, for a reader that
// has the state of the first from tokens. It writes what the reader needs of the others
// to continue, with the checkpoints at more than from tokens. A position that was written
// need not be written again while the sequence grows. After a rewind, positions from the
// rewind on must be written again; after a new checkpoint, those from the position before
// it on.
func (m *Model[C]) SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error {
	q := m.sequences[id]
	if q == nil || len(tokens) == 0 || q.length < len(tokens) || from < 0 || from > len(tokens) {
		return m.errorf("sequence %d: a snapshot with %d tokens from %d on, but it has %d", id, len(tokens), from, m.Len(id))
	}
	if err := m.settle(); err != nil {
		return err
	}
	h := snapshot.Header{Model: m.o.Fingerprint, Layout: m.network.Layout(), Length: len(tokens), Peak: q.peak, Partial: q.partial, Replayed: q.replayed, From: from}
	sections := state(q.cache, q.standing, from, len(tokens))
	for _, c := range q.checkpoints {
		if from < c.length && c.length <= len(tokens) {
			h.Checkpoints = append(h.Checkpoints, c.length)
			sections = append(sections, c.section())
		}
	}
	for i := range sections {
		sections[i].Read = m.reader.Read
	}
	return snapshot.Write(w, h, tokens, sections)
}

// Restore makes the new sequence id from a snapshot and returns its tokens. From then on
// it is as if it had run here: steps that continue it have the same bits, and it can be
// rewound as far. It must not run during a step. After an error the sequence does not
// exist; errors wrap one of package snapshot or model.ErrNoMemory, or say why the
// snapshot does not fit.
func (m *Model[C]) Restore(r io.Reader, id model.SeqID) ([]int32, error) {
	if m.sequences[id] != nil {
		return nil, m.errorf("sequence %d: it cannot be restored because it exists", id)
	}
	x, err := snapshot.Read(r, m.o.Fingerprint, m.network.Layout(), m.o.Info.ContextLength)
	if err != nil {
		return nil, m.errorf("sequence %d: %w", id, err)
	}
	if x.Peak-x.Length > m.o.Info.Rewind {
		return nil, m.errorf("sequence %d: a snapshot %d positions behind the greatest length; at most %d are possible", id, x.Peak-x.Length, m.o.Info.Rewind)
	}
	return m.take(x, id)
}

// RestoreFrom takes a snapshot of SnapshotFrom for the sequence id, which has the tokens
// before here, or none, and returns all its tokens. Its checkpoints at more than
// Header.From tokens are then those of the snapshot. The sequence can run once everything
// that SnapshotFrom writes of its tokens has been taken, also if another sequence with
// the same tokens wrote what is before From. Like Restore it must not run during a step, and
// after an error the sequence does not exist.
func (m *Model[C]) RestoreFrom(r io.Reader, id model.SeqID, before []int32) ([]int32, error) {
	x, err := snapshot.ReadOn(r, m.o.Fingerprint, m.network.Layout(), m.o.Info.ContextLength, before)
	if err == nil && x.From > m.Len(id) {
		err = fmt.Errorf("it continues %d tokens, but the sequence has %d here: %w", x.From, m.Len(id), snapshot.ErrForeign)
	}
	if err != nil {
		m.drop(id)
		return nil, m.errorf("sequence %d: %w", id, err)
	}
	if x.From == 0 {
		m.drop(id)
	}
	return m.take(x, id)
}

// take makes what a snapshot says of the sequence id.
func (m *Model[C]) take(x *snapshot.Reader, id model.SeqID) ([]int32, error) {
	for i, t := range x.Tokens {
		if t < 0 || int(t) >= m.o.Info.Vocab {
			m.drop(id)
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
	if again := x.Replayed - x.Length; again > m.o.Info.Replay {
		return m.errorf("sequence %d: a snapshot that runs %d tokens again; at most %d are possible", id, again, m.o.Info.Replay)
	}
	is := standing{length: x.Length, peak: x.Peak, intact: x.Length, partial: x.Partial, replayed: x.Replayed}
	cache, err := m.reserve(id, max(x.Length, x.Replayed))
	if err != nil {
		return m.errorf("%w", err)
	}
	q := m.sequences[id]
	m.freeBeyond(q, x.From)
	own := state(cache, is, x.From, x.Length)
	sections := own
	for _, at := range x.Checkpoints {
		_, s := divide(cache.State(0, at, at+m.o.Info.Rewind))
		s.Name = checkpointName(at)
		sections = append(sections, s)
	}
	if err := x.Expect(sections); err != nil {
		return m.errorf("sequence %d: %w", id, err)
	}
	for _, s := range own {
		if err := x.Section(s); err != nil {
			return m.errorf("sequence %d: %w", id, fmt.Errorf("the KV cache: %w", err))
		}
	}
	for i, at := range x.Checkpoints {
		if err := m.restoreCheckpoint(x, id, at, sections[len(own)+i].Bytes()); err != nil {
			return err
		}
	}
	if m.sequences[id] != q {
		return m.errorf("sequence %d: it was dropped while it was restored", id)
	}
	// What came before has the rows for rewinds to its own greatest length less Info.Rewind.
	is.peak = max(is.peak, q.peak)
	q.standing = is
	if c := find(q.checkpoints, x.Length); c != nil && !m.near(q.standing, x.Length) {
		q.peak, q.partial, q.replayed = x.Length+m.o.Info.Rewind, 0, 0
		_, overwritten := divide(cache.State(0, x.Length, q.peak))
		if err := m.copy(overwritten, c.section()); err != nil {
			return m.errorf("%w", err)
		}
	}
	q.commits++
	return nil
}

// restoreCheckpoint reads the next section of a snapshot, a checkpoint of so many bytes.
func (m *Model[C]) restoreCheckpoint(x *snapshot.Reader, id model.SeqID, length int, bytes int64) error {
	q := m.sequences[id]
	if q == nil { // dropped; the caller finds it
		return nil
	}
	c, err := m.newCheckpoint(id, length, bytes)
	if err != nil {
		return m.errorf("%w", err)
	}
	q.checkpoints = append(q.checkpoints, c)
	if err := x.Section(c.section()); err != nil {
		return m.errorf("sequence %d: the checkpoint at %d: %w", id, length, err)
	}
	return nil
}

// Export implements model.Portable.
func (m *Model[C]) Export(id model.SeqID, tokens []int32, from int) model.Export {
	return snapshot.Pull(func(w io.Writer) error { return m.SnapshotFrom(w, id, tokens, from) })
}

// Import implements model.Portable.
func (m *Model[C]) Import(id model.SeqID) model.Import {
	x := &entering{}
	x.Sink = snapshot.Push(func(r io.Reader) error {
		if m.sequences[id] != nil {
			return m.errorf("sequence %d: it cannot be restored because it exists", id)
		}
		return snapshot.Each(r, func(r io.Reader) (err error) {
			x.tokens, err = m.RestoreFrom(r, id, x.tokens)
			return err
		})
	})
	return x
}

// entering is a sequence that is being restored.
type entering struct {
	*snapshot.Sink
	tokens []int32
}

// Close implements model.Import.
func (x *entering) Close() ([]int32, error) {
	err := x.Sink.Close()
	return x.tokens, err
}
