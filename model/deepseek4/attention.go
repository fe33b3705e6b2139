package deepseek4

import (
	"math"

	"ringmaster/kernels"
)

// attention encodes attention of the normalised input x [rows][D] into y
// [rows][D]. Projections run over all rows of the step at once; what reads the KV
// cache runs segment by segment.
func (m *forward) attention(l *layer, number int, step step) {
	b, c, s, rows := m.b, m.c, &m.scratch, step.Rows
	indexed := l.overlap && m.needsIndex(step.Segments)

	inputs := []kernels.Product{{W: l.qA, Out: s.qr}, {W: l.kv, Out: s.kv}}
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

	b.RMSNorm(s.qr, s.qr, l.qANorm, rows, c.QRank, c.RMSEps)
	queries := []kernels.Product{{W: l.qB, Out: s.q}}
	if indexed {
		queries = append(queries, kernels.Product{W: l.indexQB, Out: s.idxQ})
	}
	b.MatMul(s.qr, rows, queries...)
	b.RMSNorm(s.q, s.q, nil, rows*c.Heads, c.HeadDim, c.RMSEps)
	b.RMSNorm(s.kv, s.kv, l.kvNorm, rows, c.HeadDim, c.RMSEps)
	rope := kernels.RoPEArgs{X: s.q, Pos: step.Pos, Freqs: l.freqs, Rows: rows, Heads: c.Heads, HeadDim: c.HeadDim, RotDim: c.RotDim}
	b.RoPE(rope)
	rope.X, rope.Heads = s.kv, 1
	b.RoPE(rope)
	if indexed {
		rope.X, rope.Heads, rope.HeadDim = s.idxQ, c.IndexHeads, c.IndexDim
		b.RoPE(rope)
		b.Hadamard(s.idxQ, rows*c.IndexHeads, c.IndexDim)
	}

	for _, g := range step.Segments {
		m.attend(l, &g.Cache.layers[number], g)
	}

	b.RoPE(kernels.RoPEArgs{X: s.attn, Pos: step.Pos, Freqs: l.freqs, Rows: rows,
		Heads: c.Heads, HeadDim: c.HeadDim, RotDim: c.RotDim, Inverse: true})
	b.MatMulGrouped(s.low, s.attn, rows, l.oA.RowGroups(c.OGroups))
	b.MatMul(s.low, rows, kernels.Product{W: l.oB, Out: s.y})
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

// attend appends the key/value rows of one segment to the KV cache and encodes its
// attention.
func (m *forward) attend(l *layer, state *layerState, g segment) {
	b, c, s := m.b, m.c, &m.scratch
	rawRows := c.rawRows(m.maxTokens)
	b.StoreKV(state.raw, s.kv[g.First*c.HeadDim:], g.N, c.HeadDim, g.Pos, rawRows)
	a := kernels.AttendArgs{
		Q: s.q[g.First*c.Heads*c.HeadDim:], Out: s.attn[g.First*c.Heads*c.HeadDim:],
		Raw: state.raw, Sinks: l.sinks,
		Rows: g.N, Pos: g.Pos, Heads: c.Heads, HeadDim: c.HeadDim,
		Window: c.Window, RingRows: rawRows,
		Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
	}
	if l.comp != nil {
		m.compress(l, l.comp, state.comp, s.compKV, s.compGate, g, false)
		a.Compressed, a.Ratio = state.comp.cache, l.ratio
	}
	if l.index != nil {
		m.compress(l, l.index, state.index, s.idxKV, s.idxGate, g, true)
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
