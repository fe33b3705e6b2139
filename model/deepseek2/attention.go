package deepseek2

import (
	"context"

	"ringmaster/kernels"
	"ringmaster/parallel"
)

// attention encodes attention of the normalised input h [rows][D] into y [rows][D]. With
// the latent row c and the rotated key k of each position,
//
//	score = Scale * (kB·q · c + rotated q · k),  z = softmax(scores) · c,  head = vB·z
//
// so that a head's keys and values are never computed. An indexer may choose which
// positions a token reads.
//
// If the rows of the step are divided, a rank projects its rows of x and gathers the
// others, because every rank of a group fills the whole KV cache. If heads are divided it
// computes those that it owns, of all rows, and their outputs are combined; otherwise all
// heads of its own rows. y has this rank's rows. The error is the backend's or the
// group's.
func (m *forward) attention(ctx context.Context, l *layer, number int, step step) error {
	rows := m.HeadRows(step.Own, step.Live)
	own, chooses := m.local(l), m.chooses(l, step)
	m.project(l, step, own.heads > 0, chooses)
	if err := m.gatherInputs(ctx, l, step); err != nil {
		return err
	}
	m.remember(l, number, step)
	if chooses {
		if err := m.choose(ctx, l, number, step, own.heads > 0); err != nil {
			return err
		}
	}
	if own.heads > 0 {
		m.headsOf(l, &own, number, step, rows)
	}
	return m.CombineHeads(ctx, rows.Len(), step.Cut, m.scratch.y[step.Own.Start*m.c.Embd:])
}

// project encodes the products with the normalised input of this rank's rows: the rows to
// cache, with their latent part normed and their key rotated; the keys of an indexer and
// the weights of its heads if it chooses; and the low-rank query. A rank without heads
// needs that only if others gather what is made of it.
func (m *forward) project(l *layer, step step, attends, chooses bool) {
	b, c, s, own, n, width := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len(), m.c.rowDim()
	low := c.QRank > 0 && (attends || step.Cut != nil)
	qr := s.qr[own.Start*c.QRank:]
	inputs := []kernels.Product{{W: l.latent, Out: s.latent}, {W: l.rotated, Out: s.rotated}}
	if low {
		inputs = append(inputs, kernels.Product{W: l.qA, Out: qr})
	}
	if l.index != nil {
		inputs = append(inputs, kernels.Product{W: l.index.key, Out: s.indexKey[own.Start*c.Index.Dim:]})
	}
	if low && chooses {
		inputs = append(inputs, kernels.Product{W: l.index.weight, Out: s.indexWeight[own.Start*c.Index.Heads:]})
	}
	b.MatMul(s.h[own.Start*c.Embd:], n, inputs...)
	b.RMSNorm(s.latent, s.latent, l.kvNorm, n, c.KVRank, c.RMSEps)
	b.RoPE(kernels.RoPEArgs{X: s.rotated, Pos: step.Pos[own.Start:own.End], Freqs: m.w.freqs, Rows: n, Heads: 1, HeadDim: c.RotDim, RotDim: c.RotDim, Magnitude: c.Turn})
	at := own.Start * width
	b.CopyColumns(s.rows[at:], s.latent, n, c.KVRank, width, c.KVRank)
	b.CopyColumns(s.rows[at+c.KVRank:], s.rotated, n, c.RotDim, width, c.RotDim)
	if l.index != nil {
		m.indexKeys(l, step)
	}
	if low {
		b.RMSNorm(qr, qr, l.qANorm, n, c.QRank, c.RMSEps)
	}
}

// gatherInputs sends what project has computed to all ranks, if the rows of the step are
// divided; the inputs of queries only if heads are divided too.
func (m *forward) gatherInputs(ctx context.Context, l *layer, step step) error {
	if step.Cut == nil {
		return nil
	}
	c, s := m.c, &m.scratch
	fields := []parallel.Field{parallel.FieldOf(s.rows, c.rowDim())}
	if l.index != nil {
		fields = append(fields, parallel.FieldOf(s.indexKey, c.Index.Dim))
	}
	switch {
	case !m.Heads.Divided():
	case c.QRank > 0:
		fields = append(fields, parallel.FieldOf(s.qr, c.QRank))
	default:
		fields = append(fields, parallel.FieldOf(s.h, c.Embd))
	}
	return m.GatherRows(ctx, step.Cut, fields...)
}

// headsOf encodes the attention of this rank's heads of some rows, up to their outputs.
func (m *forward) headsOf(l *layer, own *local, number int, step step, rows parallel.Range) {
	b, c, s := m.Backend, m.c, &m.scratch
	in, wide := s.qr, c.QRank
	if c.QRank == 0 {
		in, wide = s.h, c.Embd
	}
	b.MatMul(in[rows.Start*wide:], rows.Len(), kernels.Product{W: own.q, Out: s.q})
	head, width := c.Nope+c.RotDim, c.rowDim()
	b.RoPE(kernels.RoPEArgs{X: s.q, Pos: step.Pos[rows.Start:rows.End], Freqs: m.w.freqs, Rows: rows.Len(), Heads: own.heads, HeadDim: head, RotDim: c.RotDim, Magnitude: c.Turn})

	// The query in the latent space, then its rotated part beside it.
	n := rows.Len() * own.heads
	b.CopyColumns(s.nope, s.q, n, c.Nope, c.Nope, head)
	b.MatMulGrouped(s.space, s.nope, rows.Len(), own.kB)
	b.CopyColumns(s.query, s.space, n, c.KVRank, width, c.KVRank)
	b.CopyColumns(s.query[c.KVRank:], s.q[c.Nope:], n, c.RotDim, width, head)
	for _, whole := range step.Segments {
		if g, ok := whole.Part(rows); ok {
			m.attend(own.heads, number, g, g.First-rows.Start)
		}
	}
	b.MatMulGrouped(s.out, s.space, rows.Len(), own.vB)
	m.OutputOfHeads(l.out, s.out, s.y[step.Own.Start*c.Embd:], rows.Len())
}

// remember appends the rows of a step, and the keys of an indexer, to the KV caches.
func (m *forward) remember(l *layer, number int, step step) {
	s, width, dim := &m.scratch, m.c.rowDim(), m.c.Index.Dim
	for _, g := range step.Segments {
		m.Backend.StoreKV(g.Cache.rows[number], s.rows[g.First*width:], g.N, width, g.Pos, g.Cache.capacity)
		if l.index != nil {
			m.Backend.StoreKV(g.Cache.keys[number], s.indexKey[g.First*dim:], g.N, dim, g.Pos, g.Cache.capacity)
		}
	}
}

// attend encodes the attention of one segment for so many heads, query
// [rows][heads][R+RotDim] to space [rows][heads][R]. Their queries begin at row first.
func (m *forward) attend(heads, number int, g segment, first int) {
	c, s := m.c, &m.scratch
	a := kernels.AttendArgs{
		Q: s.query[first*heads*c.rowDim():], Out: s.space[first*heads*c.KVRank:],
		Rows: g.N, Pos: g.Pos, Heads: heads, HeadDim: c.rowDim(), ValueDim: c.KVRank, Scale: float32(c.Scale),
	}
	if rows := g.Cache.rows[number]; c.Index.chooses(g.Pos + g.N) {
		a.Compressed, a.Ratio, a.Selected, a.TopK = rows, 1, s.selected[g.First*c.Index.TopK:], c.Index.TopK
	} else {
		a.Raw, a.RingRows = rows, g.Cache.capacity
	}
	m.Backend.Attend(a)
}
