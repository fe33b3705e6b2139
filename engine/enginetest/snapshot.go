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

// filler is the state in a snapshot: one and a half megabytes, so that it has several pieces,
// and filledBy for each token.
func filler(tokens int) snapshot.Section {
	return snapshot.Section{Name: "nothing", Parts: [][]byte{make([]byte, 3<<19+filledBy*tokens)}}
}

const filledBy = 4 << 10

// Export implements model.Portable.
func (m *Model) Export(id model.SeqID, tokens []int32, from int) model.Export {
	defer m.enter("Export")()
	m.mu.Lock()
	defer m.mu.Unlock()
	return &export{m: m, id: id, tokens: slices.Clone(tokens), from: from}
}

type export struct {
	*snapshot.Source
	m      *Model
	id     model.SeqID
	tokens []int32
	from   int
	of     *sequence // when it began
}

// Next implements model.Export: the sequence must not have changed since Export.
func (x *export) Next() ([]byte, error) {
	defer x.m.enter("Export.Next")()
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	q := x.m.seqs[x.id]
	if x.of == nil {
		x.of = q
	}
	if q == nil || q != x.of || len(x.tokens) > len(q.tokens) || !slices.Equal(q.tokens[:len(x.tokens)], x.tokens) {
		return nil, x.m.violate("sequence %d is exported, but it is not the %d tokens that it was", x.id, len(x.tokens))
	}
	if x.Source == nil {
		h := snapshot.Header{Model: "enginetest", Layout: "enginetest", Length: len(x.tokens), Peak: q.peak, Partial: q.partial, From: x.from,
			Checkpoints: upTo(q.checkpoints, len(x.tokens))[len(upTo(q.checkpoints, x.from)):]}
		x.Source = snapshot.Pull(func(w io.Writer) error {
			return snapshot.Write(w, h, x.tokens, []snapshot.Section{filler(len(x.tokens) - x.from)})
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
	x := &entering{m: m, id: id, q: &sequence{}}
	x.Sink = snapshot.Push(func(r io.Reader) error { return snapshot.Each(r, x.read) })
	return x
}

// read reads a snapshot.
func (x *entering) read(r io.Reader) error {
	in, err := snapshot.ReadOn(r, "enginetest", "enginetest", x.m.opts.ContextLength, x.q.tokens)
	if err != nil {
		return err
	}
	if in.From != len(x.q.tokens) {
		return x.m.violate("sequence %d: a snapshot from %d on follows %d tokens", x.id, in.From, len(x.q.tokens))
	}
	at := append(x.q.checkpoints, in.Checkpoints...)
	x.m.known[x.id] = holding{in.Length, len(at)}
	if err := in.Section(filler(in.Length - in.From)); err != nil {
		return err
	}
	x.q = &sequence{tokens: in.Tokens, peak: max(x.q.peak, in.Peak), partial: in.Partial, checkpoints: at}
	if slices.Contains(at, in.Length) {
		x.q.peak, x.q.partial = min(x.q.peak, in.Length+x.m.opts.Rewind), 0
	}
	return nil
}

type entering struct {
	*snapshot.Sink
	m  *Model
	id model.SeqID
	q  *sequence // of the snapshots that were read
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
