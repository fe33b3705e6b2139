package deepseek4

import (
	"context"
	"math"

	"ringmaster/kernels"
)

// attention encodes attention of the normalised input x [rows][D] into y
// [rows][D]. Projections run over all rows of the step at once; what reads the KV
// cache runs segment by segment. In a group whose heads are divided every rank fills
// the whole KV cache and computes the heads that it owns; their outputs are combined.
// The error is the backend's or the group's.
func (m *forward) attention(ctx context.Context, l *layer, number int, step step) error {
	b, c, s, rows := m.b, m.c, &m.scratch, step.Rows
	attends := m.heads.Own().Len() > 0
	indexed := attends && l.overlap && m.needsIndex(step.Segments)

	inputs := []kernels.Product{{W: l.kv, Out: s.kv}}
	if attends {
		inputs = append(inputs, kernels.Product{W: l.qA, Out: s.qr})
	}
	if l.comp != nil {
		inputs = append(inputs, kernels.Product{W: l.comp.kv, Out: s.compKV}, kernels.Product{W: l.comp.gate, Out: s.compGate})
	}
	if l.index != nil {
		inputs = append(inputs, kernels.Product{W: l.index.kv, Out: s.idxKV}, kernels.Product{W: l.index.gate, Out: s.idxGate})
	}
	if indexed {
		inputs = append(inputs, kernels.Product{W: l.indexProj, Out: s.idxW})
	}
	b.MatMul(s.x, rows, inputs...)
	b.RMSNorm(s.kv, s.kv, l.kvNorm, rows, c.HeadDim, c.RMSEps)
	rope := kernels.RoPEArgs{X: s.kv, Pos: step.Pos, Freqs: l.freqs, Rows: rows, Heads: 1, HeadDim: c.HeadDim, RotDim: c.RotDim}
	b.RoPE(rope)
	if !attends {
		for _, g := range step.Segments {
			m.remember(l, &g.Cache.layers[number], g)
		}
		return m.combine(ctx, rows)
	}

	own := m.local(l)
	b.RMSNorm(s.qr, s.qr, l.qANorm, rows, c.QRank, c.RMSEps)
	queries := []kernels.Product{{W: own.qB, Out: s.q}}
	if indexed {
		queries = append(queries, kernels.Product{W: l.indexQB, Out: s.idxQ})
	}
	b.MatMul(s.qr, rows, queries...)
	b.RMSNorm(s.q, s.q, nil, rows*own.heads, c.HeadDim, c.RMSEps)
	rope.X, rope.Heads = s.q, own.heads
	b.RoPE(rope)
	if indexed {
		rope.X, rope.Heads, rope.HeadDim = s.idxQ, c.IndexHeads, c.IndexDim
		b.RoPE(rope)
		b.Hadamard(s.idxQ, rows*c.IndexHeads, c.IndexDim)
	}

	for _, g := range step.Segments {
		m.remember(l, &g.Cache.layers[number], g)
		m.attend(l, &own, &g.Cache.layers[number], g)
	}

	b.RoPE(kernels.RoPEArgs{X: s.attn, Pos: step.Pos, Freqs: l.freqs, Rows: rows,
		Heads: own.heads, HeadDim: c.HeadDim, RotDim: c.RotDim, Inverse: true})
	b.MatMulGrouped(s.low, s.attn, rows, own.oA)
	m.output(l, s.y, rows)
	return m.combine(ctx, rows)
}

// combine adds the outputs of the heads of all ranks into y [rows][D].
func (m *forward) combine(ctx context.Context, rows int) error {
	if err := m.heads.Start(ctx, rows); err != nil {
		return err
	}
	return m.heads.Finish(ctx, m.scratch.y)
}

// needsIndex reports whether a token of the step sees more compressed entries of
// ratio 4 than attention reads. If none does, attention reads all of them and the
// indexer need not run.
func (m *forward) needsIndex(segments []segment) bool {
	for _, g := range segments {
		if m.segmentNeedsIndex(g) {
			return true
		}
	}
	return false
}

func (m *forward) segmentNeedsIndex(g segment) bool { return (g.Pos+g.N)/4 > m.c.IndexTopK }

// remember appends the rows of one segment to the KV cache.
func (m *forward) remember(l *layer, state *layerState, g segment) {
	s := &m.scratch
	m.b.StoreKV(state.raw, s.kv[g.First*m.c.HeadDim:], g.N, m.c.HeadDim, g.Pos, m.c.rawRows(m.maxTokens))
	if l.comp != nil {
		m.compress(l, l.comp, state.comp, s.compKV, s.compGate, g, false)
	}
	if l.index != nil {
		m.compress(l, l.index, state.index, s.idxKV, s.idxGate, g, true)
	}
}

// attend encodes the attention of one segment for this rank's heads.
func (m *forward) attend(l *layer, own *local, state *layerState, g segment) {
	b, c, s := m.b, m.c, &m.scratch
	first := g.First * own.heads * c.HeadDim
	a := kernels.AttendArgs{
		Q: s.q[first:], Out: s.attn[first:],
		Raw: state.raw, Sinks: own.sinks,
		Rows: g.N, Pos: g.Pos, Heads: own.heads, HeadDim: c.HeadDim, ValueDim: c.HeadDim,
		Window: c.Window, RingRows: c.rawRows(m.maxTokens),
		Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
	}
	if l.comp != nil {
		a.Compressed, a.Ratio = state.comp.cache, l.ratio
	}
	if l.overlap && m.segmentNeedsIndex(g) {
		b.IndexTopK(kernels.IndexArgs{
			Q: s.idxQ[g.First*c.IndexHeads*c.IndexDim:], HeadWeight: s.idxW[g.First*c.IndexHeads:],
			Cache: state.index.cache, Selected: s.selected[g.First*c.IndexTopK:],
			Rows: g.N, Pos: g.Pos, Heads: c.IndexHeads, Dim: c.IndexDim, TopK: c.IndexTopK, Ratio: l.ratio,
			Scale: float32(1 / math.Sqrt(float64(c.IndexDim)*float64(c.IndexHeads))),
		})
		a.Selected, a.TopK = s.selected[g.First*c.IndexTopK:], c.IndexTopK
	}
	b.Attend(a)
}

// compress appends one segment's projections kv, gate [T][width] to the state of
// a compressor and encodes the entries of the blocks that are complete.
func (m *forward) compress(l *layer, w *compressor, state *compressorState, kv, gate []float32, g segment, hadamard bool) {
	m.b.Compress(kernels.CompressArgs{
		KV: kv[g.First*w.width:], Score: gate[g.First*w.width:], APE: w.ape, Norm: w.norm, Freqs: l.freqs,
		RingKV: state.kv, RingScore: state.score, Cache: state.cache,
		Rows: g.N, Pos: g.Pos, Ratio: l.ratio, Dim: w.dim, RotDim: m.c.RotDim, RingRows: state.rows,
		Overlap: l.overlap, Hadamard: hadamard, Eps: m.c.RMSEps,
	})
}
