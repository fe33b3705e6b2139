package deepseek2

import (
	"context"

	"ringmaster/kernels"
)

// attention encodes attention of the normalised input h [rows][D] into y [rows][D].
// With the latent row c and the rotated key k of each position,
//
//	score = Scale * (kB·q · c + rotated q · k),  z = softmax(scores) · c,  head = vB·z
//
// so a head's keys and values are never computed. In a group whose heads are divided
// every rank fills the whole KV cache and computes the heads that it owns; their outputs
// are combined. The error is the backend's or the group's.
func (m *forward) attention(ctx context.Context, l *layer, number int, step step) error {
	b, c, s, rows := m.b, m.c, &m.scratch, step.Rows
	own := m.local(l)
	inputs := []kernels.Product{{W: l.latent, Out: s.latent}, {W: l.rotated, Out: s.rotated}}
	switch {
	case own.heads == 0:
	case c.QRank == 0:
		inputs = append(inputs, kernels.Product{W: own.q, Out: s.q})
	default:
		inputs = append(inputs, kernels.Product{W: l.qA, Out: s.qr})
	}
	b.MatMul(s.h, rows, inputs...)
	m.remember(l, number, step)
	if own.heads == 0 {
		return m.combine(ctx, rows)
	}
	if c.QRank > 0 {
		b.RMSNorm(s.qr, s.qr, l.qANorm, rows, c.QRank, c.RMSEps)
		b.MatMul(s.qr, rows, kernels.Product{W: own.q, Out: s.q})
	}
	head, width := c.Nope+c.RotDim, c.rowDim()
	b.RoPE(kernels.RoPEArgs{X: s.q, Pos: step.Pos, Freqs: m.w.freqs, Rows: rows, Heads: own.heads, HeadDim: head, RotDim: c.RotDim})

	// The query in the latent space, then its rotated part beside it.
	n := rows * own.heads
	b.CopyColumns(s.nope, s.q, n, c.Nope, c.Nope, head)
	b.MatMulGrouped(s.space, s.nope, rows, own.kB)
	b.CopyColumns(s.query, s.space, n, c.KVRank, width, c.KVRank)
	b.CopyColumns(s.query[c.KVRank:], s.q[c.Nope:], n, c.RotDim, width, head)
	for _, g := range step.Segments {
		m.attend(own.heads, number, g)
	}
	b.MatMulGrouped(s.out, s.space, rows, own.vB)
	m.output(l, rows)
	return m.combine(ctx, rows)
}

// remember appends the rows of a step to the KV caches: the normed latent part and the
// rotated key, which is not normed.
func (m *forward) remember(l *layer, number int, step step) {
	b, c, s, rows, width := m.b, m.c, &m.scratch, step.Rows, m.c.rowDim()
	b.RMSNorm(s.latent, s.latent, l.kvNorm, rows, c.KVRank, c.RMSEps)
	b.RoPE(kernels.RoPEArgs{X: s.rotated, Pos: step.Pos, Freqs: m.w.freqs, Rows: rows, Heads: 1, HeadDim: c.RotDim, RotDim: c.RotDim})
	b.CopyColumns(s.rows, s.latent, rows, c.KVRank, width, c.KVRank)
	b.CopyColumns(s.rows[c.KVRank:], s.rotated, rows, c.RotDim, width, c.RotDim)
	for _, g := range step.Segments {
		b.StoreKV(g.Cache.layers[number], s.rows[g.First*width:], g.N, width, g.Pos, g.Cache.capacity)
	}
}

// attend encodes the attention of one segment for so many heads: query [rows][heads]
// [R+RotDim] to space [rows][heads][R].
func (m *forward) attend(heads, number int, g segment) {
	c, s := m.c, &m.scratch
	m.b.Attend(kernels.AttendArgs{
		Q: s.query[g.First*heads*c.rowDim():], Out: s.space[g.First*heads*c.KVRank:],
		Raw:  g.Cache.layers[number],
		Rows: g.N, Pos: g.Pos, Heads: heads, HeadDim: c.rowDim(), ValueDim: c.KVRank,
		RingRows: g.Cache.capacity, Scale: float32(c.Scale),
	})
}

// combine adds the outputs of the heads of all ranks into y [rows][D].
func (m *forward) combine(ctx context.Context, rows int) error {
	if err := m.heads.Start(ctx, rows); err != nil {
		return err
	}
	return m.heads.Finish(ctx, m.scratch.y)
}
