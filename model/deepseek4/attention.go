package deepseek4

import (
	"context"
	"math"

	"ringmaster/kernels"
	"ringmaster/model/hyper"
	"ringmaster/parallel"
)

// attention encodes attention of the normalised input x [rows][D] into y [rows][D], of
// this rank's rows. Projections run over many rows of the step at once; what reads the KV
// cache runs segment by segment. In a group every rank fills the whole KV cache. If heads
// are divided it computes those that it owns, of all rows, and their outputs are
// combined; otherwise all heads of its own rows. The error is the backend's or the
// group's.
func (m *forward) attention(ctx context.Context, l *layer, number int, step step) error {
	attends := m.Heads.Own().Len() > 0
	indexed := l.overlap && m.needsIndex(step)
	rows := m.HeadRows(step.Own, step.Live)
	m.project(l, step, attends, indexed)
	var indexer *kernels.Product
	if indexed {
		indexer = m.indexQueries(l, step)
	}
	norms, both := hyper.NormsQueries(rows, step.Own, step.Cut), false
	if norms && attends { // before the keys, because a command buffer that ended between would end with a stage for these
		both = m.Queries(&l.attn, rows, indexer, step.Own, true)
	}
	m.keys(l, number, step)
	if !norms && (attends || step.Cut != nil) {
		m.NormQuery(&l.attn, step.Own)
	}
	if err := m.gatherInputs(ctx, l, step); err != nil {
		return err
	}
	for _, g := range step.Segments {
		m.remember(l, &g.Cache.layers[number], g, storesAtOnce(step))
	}
	if !norms && attends {
		both = m.Queries(&l.attn, rows, indexer, step.Own, false)
	}
	if indexed {
		if err := m.index(ctx, l, number, step, attends, both); err != nil {
			return err
		}
	}
	if attends {
		m.headsOf(l, number, step, rows)
	}
	return m.CombineHeads(ctx, rows.Len(), step.Cut, m.Y[step.Own.Start*m.c.Embd:])
}

// project encodes the products with the input of the attention of this rank's rows: the
// rows to cache and the low-rank query, before their norms. A rank without heads
// needs the query only if others gather it or for the indexer.
func (m *forward) project(l *layer, step step, attends, indexed bool) {
	c, s, at, n := m.c, &m.scratch, step.Own.Start, step.Own.Len()
	inputs := []kernels.Product{{W: l.attn.KV, Out: m.KV[at*c.HeadDim:]}}
	query := attends || step.Cut != nil
	if query {
		inputs = append(inputs, kernels.Product{W: l.attn.QA, Out: m.QR[at*c.QRank:]})
	}
	if w := l.comp; w != nil {
		inputs = append(inputs, kernels.Product{W: w.kv, Out: s.compKV[at*w.width:]}, kernels.Product{W: w.gate, Out: s.compGate[at*w.width:]})
	}
	if w := l.index; w != nil {
		inputs = append(inputs, kernels.Product{W: w.kv, Out: s.idxKV[at*w.width:]}, kernels.Product{W: w.gate, Out: s.idxGate[at*w.width:]})
	}
	if query && indexed {
		inputs = append(inputs, kernels.Product{W: l.indexProj, Out: s.idxW[at*c.IndexHeads:]})
	}
	m.Backend.MatMul(m.X[at*c.Embd:], n, inputs...)
}

// keys encodes the norm and the rotation of this rank's rows to cache, which it stores where it can.
func (m *forward) keys(l *layer, number int, step step) {
	c, own, n := m.c, step.Own, step.Own.Len()
	at := own.Start
	keys := kernels.RoPEArgs{X: m.KV[at*c.HeadDim:], Pos: step.Pos[at:own.End], Freqs: l.freqs, Rows: n, Heads: 1, HeadDim: c.HeadDim, RotDim: c.RotDim,
		Norm: true, NormWeight: l.attn.KVNorm, Eps: c.RMSEps}
	if storesAtOnce(step) {
		g := step.Segments[0]
		keys.Ring, keys.RingPos, keys.RingRows = g.Cache.layers[number].raw, g.Pos, c.RawRows(m.MaxTokens)
	}
	m.Backend.RoPE(keys)
}

// gatherInputs sends what project has computed to all ranks, if the rows of the step are
// divided; the query only if heads are divided too.
func (m *forward) gatherInputs(ctx context.Context, l *layer, step step) error {
	if step.Cut == nil {
		return nil
	}
	c, s := m.c, &m.scratch
	fields := []parallel.Field{parallel.FieldOf(m.KV, c.HeadDim)}
	if m.Heads.Divided() {
		fields = append(fields, parallel.FieldOf(m.QR, c.QRank))
	}
	if w := l.comp; w != nil {
		fields = append(fields, parallel.FieldOf(s.compKV, w.width), parallel.FieldOf(s.compGate, w.width))
	}
	if w := l.index; w != nil {
		fields = append(fields, parallel.FieldOf(s.idxKV, w.width), parallel.FieldOf(s.idxGate, w.width))
	}
	return m.GatherRows(ctx, step.Cut, fields...)
}

// indexQueries is the product of the indexer's queries of this rank's rows.
func (m *forward) indexQueries(l *layer, step step) *kernels.Product {
	return &kernels.Product{W: l.indexQB, Out: m.scratch.idxQ[step.Own.Start*m.c.IndexHeads*m.c.IndexDim:]}
}

// index encodes the choice of compressed entries for the tokens of the step that see more
// than attention reads. If rows are divided it chooses for this rank's rows, and gathers
// the choice if its heads need all rows. multiplied says that the product of its queries is
// encoded.
func (m *forward) index(ctx context.Context, l *layer, number int, step step, attends, multiplied bool) error {
	if !attends && step.Cut == nil {
		return nil
	}
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	product := m.indexQueries(l, step)
	if !multiplied {
		b.MatMul(m.QR[own.Start*c.QRank:], n, *product)
	}
	rotates := len(step.Segments) == 1 // IndexTopK does, of one segment
	if !rotates {
		b.RoPE(kernels.RoPEArgs{X: product.Out, Pos: step.Pos[own.Start:own.End], Freqs: l.freqs, Rows: n, Heads: c.IndexHeads, HeadDim: c.IndexDim, RotDim: c.RotDim, Hadamard: true})
	}
	for _, whole := range step.Segments {
		g, ok := whole.Part(own)
		if !ok || !m.segmentNeedsIndex(whole) {
			continue
		}
		a := kernels.IndexArgs{
			Q: s.idxQ[g.First*c.IndexHeads*c.IndexDim:], HeadWeight: s.idxW[g.First*c.IndexHeads:],
			Cache: g.Cache.layers[number].index.cache, Selected: s.selected[g.First*c.IndexTopK:],
			Rows: g.N, Pos: g.Pos, Heads: c.IndexHeads, Dim: c.IndexDim, TopK: c.IndexTopK, Ratio: l.ratio,
			Scale: float32(1 / math.Sqrt(float64(c.IndexDim)*float64(c.IndexHeads))),
		}
		if rotates {
			a.Freqs, a.Positions, a.RotDim = l.freqs, step.Pos[g.First:], c.RotDim
		}
		b.IndexTopK(a)
	}
	if !m.Heads.Divided() {
		return nil
	}
	return m.GatherRows(ctx, step.Cut, parallel.FieldOf(s.selected, c.IndexTopK))
}

// headsOf encodes the attention of this rank's heads of some rows, up to their outputs.
func (m *forward) headsOf(l *layer, number int, step step, rows parallel.Range) {
	m.HeadsOf(&l.attn, l.freqs, rows, step.Pos, true, m.Y[step.Own.Start*m.c.Embd:], len(step.Segments), func(own *hyper.Local) {
		for _, whole := range step.Segments {
			if g, ok := whole.Part(rows); ok {
				m.attend(l, own, &g.Cache.layers[number], g, g.First-rows.Start, l.overlap && m.segmentNeedsIndex(whole))
			}
		}
	})
}

// needsIndex reports whether a token of the step sees more compressed entries of ratio 4
// than attention reads. Otherwise the indexer need not run, because attention reads all
// of them.
func (m *forward) needsIndex(step step) bool { return step.End/4 > m.c.IndexTopK }

func (m *forward) segmentNeedsIndex(g segment) bool { return (g.Pos+g.N)/4 > m.c.IndexTopK }

// storesAtOnce reports whether project can store the rows of the window: this rank has all of
// them, and they are of one sequence.
func storesAtOnce(step step) bool { return step.Cut == nil && len(step.Segments) == 1 }

// remember appends the rows of one segment to the KV cache; stored says that project has
// stored those of the window.
func (m *forward) remember(l *layer, state *layerState, g segment, stored bool) {
	s := &m.scratch
	if !stored {
		m.Backend.StoreKV(state.raw, m.KV[g.First*m.c.HeadDim:], g.N, m.c.HeadDim, g.Pos, m.c.RawRows(m.MaxTokens))
	}
	var all []kernels.CompressArgs
	if l.comp != nil {
		all = append(all, m.compress(l, l.comp, state.comp, s.compKV, s.compGate, g, false))
	}
	if l.index != nil {
		all = append(all, m.compress(l, l.index, state.index, s.idxKV, s.idxGate, g, true))
	}
	m.Backend.Compress(all...)
}

// attend encodes the attention of one segment for this rank's heads. Their queries begin
// at row first of Q; indexed says whether the indexer has chosen entries for it.
func (m *forward) attend(l *layer, own *hyper.Local, state *layerState, g segment, first int, indexed bool) {
	a := m.Windowed(own, state.raw, first, g.N, g.Pos)
	if l.comp != nil {
		a.Compressed, a.Ratio = state.comp.cache, l.ratio
	}
	if indexed {
		a.Selected, a.TopK = m.scratch.selected[g.First*m.c.IndexTopK:], m.c.IndexTopK
	}
	m.Backend.Attend(a)
}

// compress are the arguments that append one segment's projections kv, gate [T][width] to the
// state of a compressor and compute the entries of the blocks that are complete.
func (m *forward) compress(l *layer, w *compressor, state *compressorState, kv, gate []float32, g segment, hadamard bool) kernels.CompressArgs {
	return kernels.CompressArgs{
		KV: kv[g.First*w.width:], Score: gate[g.First*w.width:], APE: w.ape, Norm: w.norm, Freqs: l.freqs,
		RingKV: state.kv, RingScore: state.score, Cache: state.cache,
		Rows: g.N, Pos: g.Pos, Ratio: l.ratio, Dim: w.dim, RotDim: m.c.RotDim, RingRows: state.rows,
		Overlap: l.overlap, Hadamard: hadamard, Eps: m.c.RMSEps,
	}
}
