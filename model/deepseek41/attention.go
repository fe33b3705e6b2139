package deepseek41

import (
	"context"
	"math"

	"ringmaster/kernels"
	"ringmaster/model/hyper"
	"ringmaster/parallel"
)

// attention encodes attention of the normalised input X [rows][D] into Y [rows][D], of this
// rank's rows. Projections run over many rows of the step at once; what reads the KV cache
// runs segment by segment. In a group every rank fills the whole KV cache. If heads are
// divided it computes those that it owns, of all rows, and their outputs are combined;
// otherwise all heads of its own rows. The rows that enter the layer get what later rows may
// read, those that leave it an output too. The error is the backend's or the group's.
func (m *forward) attention(ctx context.Context, l *layer, number int, in, out step) error {
	attends := m.Heads.Own().Len() > 0
	indexed := l.index != nil && m.chooses(out.End, l.Ratio)
	rows, y := m.HeadRows(out.Own, out.Live), m.Y[out.Own.Start*m.c.Embd:]
	norms := hyper.NormsQueries(rows, out.Own, out.Cut)
	m.project(l, in, out, attends, indexed)
	if !norms && (attends || out.Cut != nil) {
		m.NormQuery(&l.attn, out.Own)
	}
	if err := m.gatherInputs(ctx, l, in); err != nil {
		return err
	}
	for _, g := range in.Segments {
		m.Backend.StoreKV(g.Cache.layers[number].raw, m.KV[g.First*m.c.HeadDim:], g.N, m.c.HeadDim, g.Pos, m.c.RawRows(m.MaxTokens))
	}
	if l.source != nil {
		m.makeEntries(l, number, in)
	}
	if out.Live.Len() == 0 {
		return nil
	}
	attends = attends && rows.Len() > 0
	var indexer *kernels.Product
	if indexed {
		indexer = m.indexQueries(l, out)
	}
	both := attends && m.Queries(&l.attn, rows, indexer, out.Own, norms)
	if indexed {
		if err := m.choose(ctx, l, number, out, m.Heads.Own().Len() > 0, both); err != nil {
			return err
		}
	}
	if attends {
		m.HeadsOf(&l.attn, l.freqs, rows, out.Pos, false, y, len(out.Segments), func(own *hyper.Local) {
			for _, whole := range out.Segments {
				if g, ok := whole.Part(rows); ok {
					m.attend(l, own, g, number, g.First-rows.Start, m.chooses(whole.Pos+whole.N, l.Ratio))
				}
			}
		})
	}
	return m.CombineHeads(ctx, rows.Len(), out.LiveCut(), y)
}

// project encodes the products with the input of the attention of this rank's rows: the rows
// to cache of those that enter the layer, and the low-rank query of those that leave it. A
// rank without heads needs the query only if others gather it or for the indexer.
func (m *forward) project(l *layer, in, out step, attends, indexed bool) {
	b, c, s, own, n := m.Backend, m.c, &m.scratch, in.Own, in.Own.Len()
	if n == 0 {
		return
	}
	at, last := own.Start, out.Own.Start
	kv, qr := m.KV[at*c.HeadDim:], m.QR[last*c.QRank:]
	inputs := []kernels.Product{{W: l.attn.KV, Out: kv}}
	var queries []kernels.Product
	if out.Own.Len() > 0 && (attends || out.Cut != nil) {
		queries = append(queries, kernels.Product{W: l.attn.QA, Out: qr})
	}
	if w := l.source; w != nil {
		inputs = append(inputs, kernels.Product{W: w.kv, Out: s.compKV[at*c.HeadDim:]})
		if w.gate.Exists() {
			inputs = append(inputs, kernels.Product{W: w.gate, Out: s.compGate[at*c.HeadDim:]})
		}
	}
	if len(queries) > 0 && indexed {
		queries = append(queries, kernels.Product{W: l.index.proj, Out: s.idxW[last*c.IndexHeads:]})
	}
	if last == at {
		inputs = append(inputs, queries...)
	}
	b.MatMul(m.X[at*c.Embd:], n, inputs...)
	b.RoPE(kernels.RoPEArgs{X: kv, Pos: in.Pos[at:own.End], Freqs: l.freqs, Rows: n, Heads: 1, HeadDim: c.HeadDim, RotDim: c.RotDim,
		Norm: true, NormWeight: l.attn.KVNorm, Eps: c.RMSEps})
	if len(queries) > 0 && last > at {
		b.MatMul(m.X[last*c.Embd:], out.Own.Len(), queries...)
	}
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
	if w := l.source; w != nil {
		fields = append(fields, parallel.FieldOf(s.compKV, c.HeadDim))
		if w.gate.Exists() {
			fields = append(fields, parallel.FieldOf(s.compGate, c.HeadDim))
		}
	}
	return m.GatherRows(ctx, step.Cut, fields...)
}

// entries is the compressed entries of one ratio that a segment completes: count of them,
// from number first of its sequence on, in rows from at on of the buffers.
type entries struct{ at, first, count int }

func entriesOf(g segment, ratio, at int) entries {
	first := g.Pos / ratio
	return entries{at, first, (g.Pos+g.N)/ratio - first}
}

// from is those entries that have at least the number first.
func (e entries) from(first int) entries {
	left := min(max(first-e.first, 0), e.count)
	return entries{e.at + left, e.first + left, e.count - left}
}

// entriesOfAll is the number of entries of a ratio that segments complete.
func entriesOfAll(list []segment, ratio int) (n int) {
	for _, g := range list {
		n += entriesOf(g, ratio, 0).count
	}
	return n
}

// countEntries computes the positions at which the entries of ratio 2 are rotated that the
// step completes: those of their first tokens.
func (m *forward) countEntries(step step) {
	if !m.c.compressed() {
		return
	}
	at := 0
	for _, g := range step.Segments {
		e := entriesOf(g, 2, at)
		for i := range e.count {
			m.scratch.entryPos[at+i] = int32(2 * (e.first + i))
		}
		at += e.count
	}
	m.scratch.entries = at
}

// makeEntries appends the entries that the step completes, and their index keys, to the KV
// caches, of all rows of the step. The keys are made of the entries before these are rotated.
// Entries that a cache has already stay as they are.
func (m *forward) makeEntries(l *layer, number int, step step) {
	b, c, s, w := m.Backend, m.c, &m.scratch, l.source
	total, pos := step.Live.Len(), step.Pos[step.Live.Start:]
	if l.Ratio == 1 {
		b.RMSNorm(s.latent, s.compKV[step.Live.Start*c.HeadDim:], w.norm, total, c.HeadDim, c.RMSEps)
	} else {
		total, pos = 0, s.entryPos[s.entries-entriesOfAll(step.Segments, 2):]
		for _, g := range step.Segments {
			state := g.Cache.layers[number].source
			b.Compress(kernels.CompressArgs{
				KV: s.compKV[g.First*c.HeadDim:], Score: s.compGate[g.First*c.HeadDim:], Norm: w.norm,
				RingKV: state.kv, RingScore: state.score, Latent: s.latent[total*c.HeadDim:],
				Rows: g.N, Pos: g.Pos, Ratio: l.Ratio, Dim: c.HeadDim, RingRows: state.ringRows, Eps: c.RMSEps,
			})
			total += entriesOf(g, l.Ratio, total).count
		}
	}
	if total == 0 {
		return
	}
	b.MatMul(s.latent, total, kernels.Product{W: w.key, Out: s.keys})
	b.RoPE(kernels.RoPEArgs{X: s.keys, Pos: pos, Freqs: l.freqs, Rows: total, Heads: 1, HeadDim: c.IndexDim, RotDim: c.RotDim,
		Norm: true, NormWeight: w.keyNorm, Eps: c.RMSEps})
	b.RoPE(kernels.RoPEArgs{X: s.latent, Pos: pos, Freqs: l.freqs, Rows: total, Heads: 1, HeadDim: c.HeadDim, RotDim: c.RotDim})
	at := 0
	for _, g := range step.Segments {
		e := entriesOf(g, l.Ratio, at)
		at += e.count
		if e = e.from(g.Known / l.Ratio); e.count > 0 {
			state := g.Cache.layers[number].source
			b.StoreKV(state.entries, s.latent[e.at*c.HeadDim:], e.count, c.HeadDim, e.first, len(state.entries)/c.HeadDim)
			b.StoreKV(state.keys, s.keys[e.at*c.IndexDim:], e.count, c.IndexDim, e.first, len(state.keys)/c.IndexDim)
		}
	}
}

// chooses reports whether a token of a step or segment that ends before position end sees
// more entries of a ratio than attention reads. Otherwise the indexer need not run, because
// attention reads all of them.
func (m *forward) chooses(end, ratio int) bool { return ratio > 0 && end/ratio > m.c.IndexTopK }

// indexQueries is the product of the indexer's queries of this rank's rows.
func (m *forward) indexQueries(l *layer, step step) *kernels.Product {
	return &kernels.Product{W: l.index.qB, Out: m.scratch.idxQ[step.Own.Start*m.c.IndexHeads*m.c.IndexDim:]}
}

// choose encodes the choice of entries for the tokens of the segments that see more than
// attention reads. If rows are divided it chooses for this rank's rows, and gathers the
// choice if its heads need all rows. It stays for the following layers without an indexer,
// and the blocks that the candidates' layer keeps for those that choose within them.
// multiplied says that the product of its queries is encoded.
func (m *forward) choose(ctx context.Context, l *layer, number int, step step, attends, multiplied bool) error {
	if !attends && step.Cut == nil {
		return nil
	}
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	if n > 0 {
		product := m.indexQueries(l, step)
		if !multiplied {
			b.MatMul(m.QR[own.Start*c.QRank:], n, *product)
		}
		b.RoPE(kernels.RoPEArgs{X: product.Out, Pos: step.Pos[own.Start:own.End], Freqs: l.freqs, Rows: n, Heads: c.IndexHeads, HeadDim: c.IndexDim, RotDim: c.RotDim})
	}
	for _, whole := range step.Segments {
		g, ok := whole.Part(own)
		if !ok || !m.chooses(whole.Pos+whole.N, l.Ratio) {
			continue
		}
		a := kernels.IndexArgs{
			Q: s.idxQ[g.First*c.IndexHeads*c.IndexDim:], HeadWeight: s.idxW[g.First*c.IndexHeads:],
			Cache: g.Cache.layers[l.Source].source.keys, Selected: s.selected[g.First*c.IndexTopK:],
			Rows: g.N, Pos: g.Pos, Heads: c.IndexHeads, Dim: c.IndexDim, TopK: c.IndexTopK, Ratio: l.Ratio,
			Scale: float32(1 / math.Sqrt(float64(c.IndexDim)*float64(c.IndexHeads))),
		}
		if m.keepsBlocks(number) && (whole.Pos+whole.N)/l.Ratio > c.BlocksKept*c.BlockSize {
			a.Blocks, a.BlocksKept, a.BlockSize = s.blocks[g.First*c.BlocksKept:], c.BlocksKept, c.BlockSize
			a.Mask = number != c.Candidates
		}
		b.IndexTopK(a)
	}
	if !m.Heads.Divided() {
		return nil
	}
	return m.GatherRows(ctx, step.Cut, parallel.FieldOf(s.selected, c.IndexTopK))
}

// keepsBlocks reports whether a layer keeps blocks of entries or chooses within them.
func (m *forward) keepsBlocks(layer int) bool {
	return m.c.Candidates >= 0 && layer >= m.c.Candidates
}

// attend encodes the attention of one segment for this rank's heads. Their queries begin at
// row first of Q; chosen says whether the indexer has chosen entries for it.
func (m *forward) attend(l *layer, own *hyper.Local, g segment, number, first int, chosen bool) {
	a := m.Windowed(own, g.Cache.layers[number].raw, first, g.N, g.Pos)
	if l.Ratio > 0 {
		a.Compressed, a.Ratio = g.Cache.layers[l.Source].source.entries, l.Ratio
	}
	if chosen {
		a.Selected, a.TopK = m.scratch.selected[g.First*m.c.IndexTopK:], m.c.IndexTopK
	}
	m.Backend.Attend(a)
}
