package enginetest

import (
	"io"
	"slices"

	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// Forget drops all sequences; their ids may be used again.
func (m *Model) Forget() {
	defer m.enter("Forget")()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seqs)
	clear(m.known)
	m.forwarded, m.next = nil, nil
}

// Restore makes a new sequence of these committed tokens, with checkpoints at these
// lengths.
func (m *Model) Restore(id model.SeqID, tokens []int32, checkpoints ...int) {
	defer m.enter("Restore")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[id].length > 0 || m.dropped[id] {
		m.violate("sequence %d is restored, but it is known", id)
	}
	m.set(id, &sequence{tokens: slices.Clone(tokens), peak: len(tokens), checkpoints: slices.Clone(checkpoints)})
}

// set makes q the committed state of a sequence; mu is held.
func (m *Model) set(id model.SeqID, q *sequence) {
	m.seqs[id] = q
	m.known[id] = holding{len(q.tokens), len(q.checkpoints)}
}

// Drop drops a sequence outside a step.
func (m *Model) Drop(id model.SeqID) {
	defer m.enter("Drop")()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seqs, id)
	delete(m.known, id)
}

// Extend makes these the committed tokens and the lengths of the checkpoints of a
// sequence, which may be new.
func (m *Model) Extend(id model.SeqID, tokens []int32, checkpoints ...int) {
	defer m.enter("Extend")()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(id, &sequence{tokens: slices.Clone(tokens), peak: len(tokens), checkpoints: slices.Clone(checkpoints)})
}

// Export implements model.Portable. The snapshot includes one and a half megabytes of
// filler, so that it has several pieces.
func (m *Model) Export(id model.SeqID, tokens []int32) model.Export {
	defer m.enter("Export")()
	m.mu.Lock()
	defer m.mu.Unlock()
	return &export{m: m, id: id, tokens: slices.Clone(tokens)}
}

type export struct {
	*snapshot.Source
	m      *Model
	id     model.SeqID
	tokens []int32
}

// Next implements model.Export: the sequence must not have changed since Export.
func (x *export) Next() ([]byte, error) {
	defer x.m.enter("Export.Next")()
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	q := x.m.seqs[x.id]
	if q == nil || !slices.Equal(q.tokens, x.tokens) {
		return nil, x.m.violate("sequence %d is exported, but it is not the %d tokens that it was", x.id, len(x.tokens))
	}
	if x.Source == nil {
		h := snapshot.Header{Model: "enginetest", Layout: "enginetest", Length: len(q.tokens), Peak: q.peak, Checkpoints: q.checkpoints}
		x.Source = snapshot.Pull(func(w io.Writer) error {
			return snapshot.Write(w, h, x.tokens, []snapshot.Section{{Name: "nothing", Parts: [][]byte{make([]byte, 3<<19)}}})
		})
	}
	return x.Source.Next()
}

// Stop implements model.Export.
func (x *export) Stop() {
	if x.Source != nil {
		x.Source.Stop()
	}
}

// Import implements model.Portable.
func (m *Model) Import(id model.SeqID) model.Import {
	defer m.enter("Import")()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[id] = holding{length: 1} // it may hold memory
	x := &entering{m: m, id: id}
	x.Sink = snapshot.Push(func(r io.Reader) error {
		in, err := snapshot.Read(r, "enginetest", "enginetest", m.opts.ContextLength)
		if err != nil {
			return err
		}
		if err := checkpointsIn(in.Checkpoints, in.Length); err != nil {
			return err
		}
		m.known[id] = holding{in.Length, len(in.Checkpoints)}
		if err := in.Section(snapshot.Section{Name: "nothing", Parts: [][]byte{make([]byte, 3<<19)}}); err != nil {
			return err
		}
		x.q = &sequence{tokens: in.Tokens, peak: in.Peak, checkpoints: in.Checkpoints}
		return nil
	})
	return x
}

type entering struct {
	*snapshot.Sink
	m  *Model
	id model.SeqID
	q  *sequence // complete when the Sink is
}

// Write implements model.Import.
func (x *entering) Write(b []byte) (int, error) {
	defer x.m.enter("Import.Write")()
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if x.m.dropped[x.id] {
		return 0, x.m.violate("sequence %d is imported after its drop", x.id)
	}
	return x.Sink.Write(b)
}

// Close implements model.Import.
func (x *entering) Close() ([]int32, error) {
	defer x.m.enter("Import.Close")()
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if err := x.Sink.Close(); err != nil {
		return nil, err
	}
	x.m.set(x.id, x.q)
	return slices.Clone(x.q.tokens), nil
}
