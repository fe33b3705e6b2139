package deepseek41

import (
	"context"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// step is a step of the decoder with this architecture's KV caches.
type (
	step    = decoder.Step[*cache]
	segment = decoder.Segment[*cache]
)

// Layers implements decoder.Network. The weights with which a sub-layer collapses the
// streams lag by one sub-layer: attention takes those of the FFN before it, the FFN those of
// the attention before it.
func (m *forward) Layers(ctx context.Context, step step) error {
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	if err := m.readRows(ctx, step); err != nil {
		return err
	}
	m.countEntries(step)
	if step.Layers.Start > 0 {
		copy(s.carried, s.carried[own.Start*c.Streams:own.End*c.Streams]) // where a rank has those of its rows
	} else {
		b.Embed(m.X, m.w.embd, step.IDs[own.Start:own.End])
		b.HCInit(m.H[own.Start*c.Streams*c.Embd:], m.X, n, c.Streams, c.Embd)
		for i := range n * c.Streams { // the first attention takes the first stream
			s.carried[i] = 0
			if i%c.Streams == 0 {
				s.carried[i] = 1
			}
		}
	}
	var before []float32 // the output of the layer before, by which the streams are not expanded yet
	for i := step.Layers.Start; i < step.Layers.End; i++ {
		in, out := step.Entering(i), step.Leaving(i)
		if in.Live.Len() == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		if err := m.layer(ctx, i, in, out, own.Start, before); err != nil {
			return err
		}
		before = nil
		if own := out.Own; own.Len() > 0 {
			if y := m.Y[own.Start*c.Embd:]; m.expandsNext(i, step) {
				before = y
			} else {
				b.HCExpand(m.H[own.Start*c.Streams*c.Embd:], y, m.Post, m.Comb, own.Len(), c.Streams, c.Embd)
			}
		}
	}
	if step.Layers.End < c.Layers {
		return m.leaveSpan(ctx, step)
	}
	step = step.Leaving(c.Layers - 1)
	if own = step.Own; own.Len() > 0 {
		b.HCCollapse(m.X[own.Start*c.Embd:], m.H[own.Start*c.Streams*c.Embd:], s.carried, own.Len(), c.Streams, c.Embd)
	}
	return m.Leave(ctx, step.Cut, step.Kept, parallel.FieldOf(m.X, c.Embd))
}

// leaveSpan is Leave of the streams and of the weights with which the next attention
// collapses them.
func (m *forward) leaveSpan(ctx context.Context, step step) error {
	if step.Cut == nil {
		return nil
	}
	if err := m.Backend.Flush(); err != nil {
		return err
	}
	c, own := m.c, step.Own
	copy(m.scratch.carried[own.Start*c.Streams:], m.scratch.carried[:own.Len()*c.Streams])
	return m.Leave(ctx, step.Cut, step.Kept, parallel.FieldOf(m.H, c.Streams*c.Embd), parallel.FieldOf(m.scratch.carried, c.Streams))
}

// Carried implements decoder.Network: the streams, and the weights with which the next
// attention collapses them.
func (m *forward) Carried() []decoder.Carried {
	c := m.c
	return []decoder.Carried{{Data: m.H, Width: c.Streams * c.Embd}, {Data: m.scratch.carried, Width: c.Streams}}
}

// Splits implements decoder.Network: layers that read the compressed entries of an earlier
// one, or its choice, stay with it.
func (m *forward) Splits(layer int) bool {
	for _, r := range m.c.Roles[layer:] {
		if r.Ratio > 0 && (r.Source < layer || r.Index < layer) {
			return false
		}
	}
	return true
}

// expandsNext reports whether the layer after layer i can expand the streams: if it runs here,
// and adds nothing to them first.
func (m *forward) expandsNext(i int, step step) bool {
	return i+1 < step.Layers.End && m.w.layers[i+1].engram == nil
}

// layer runs a layer with the rows that enter it, up to those that leave it, but for the end of its
// FFN: the streams are still to be expanded by Y. First it expands them by that of the layer
// before, nil for none. This rank's first row of the step is number first.
func (m *forward) layer(ctx context.Context, i int, in, out step, first int, before []float32) error {
	b, c, s, l := m.Backend, m.c, &m.scratch, &m.w.layers[i]
	if in.Own.Len() > 0 {
		if l.engram != nil {
			m.addEngram(l, in.Own, in.Own.Start-first)
		}
		m.Mix(&l.hcAttn, before, m.Pre, s.carried, l.attnNorm, in.Own)
	}
	if err := m.attention(ctx, l, i, in, out); err != nil {
		return fmt.Errorf("layer %d: %w", i, err)
	}
	if out.Live.Len() == 0 {
		return nil
	}
	own, n := out.Own, out.Own.Len()
	h, y := m.H[own.Start*c.Streams*c.Embd:], m.Y[own.Start*c.Embd:]
	if n > 0 {
		left := (own.Start - in.Own.Start) * c.Streams // coefficients of rows that do not leave
		attended := y
		if left > 0 { // those of the rows that do are not where Mix leaves the next
			b.HCExpand(h, y, m.Post[left:], m.Comb[left*c.Streams:], n, c.Streams, c.Embd)
			attended = nil
		}
		m.Mix(&l.hcFFN, attended, s.carried, m.Pre[left:], l.ffnNorm, own)
	}
	live := out.Live
	if err := m.Routed.Begin(ctx, i, &l.experts, m.X[live.Start*c.Embd:], out.IDs[live.Start:], live.Len(), out.LiveCut()); err != nil {
		return err
	}
	return m.Routed.Finish(ctx, y)
}

// addEngram adds the rows of the tables to the streams of this rank's rows, which are those
// from number first on that it has read.
func (m *forward) addEngram(l *layer, own parallel.Range, first int) {
	c, s, n := m.c, &m.scratch, own.Len()
	h := m.H[own.Start*c.Streams*c.Embd:]
	rows := s.rows[(l.Engram*m.MaxTokens+first)*c.Engram.values():]
	m.Backend.MatMul(rows, n, kernels.Product{W: l.engram.kv, Out: s.gramKV})
	m.Backend.HCGate(kernels.HCGateArgs{
		H: h, KV: s.gramKV, HNorm: l.engram.hNorm, KeyNorm: l.engram.keyNorm,
		Rows: n, Streams: c.Streams, Cols: c.Embd, Eps: c.RMSEps,
	})
}

// Head implements decoder.Network: the logits of rows [wanted][V]. A rank computes its part
// of the vocabulary; rank 0 gets all of it.
func (m *forward) Head(ctx context.Context, rows []int32) ([][]float32, error) {
	b, c, n := m.Backend, m.c, len(rows)
	x := m.Pick(m.X, rows)
	if x == nil {
		return nil, b.Flush()
	}
	b.RMSNorm(x, x, m.w.outputNorm, n, c.Embd, c.RMSEps)
	return m.Logits.Run(ctx, x, n, m.w.output)
}

// readRows remembers the folded ids of the step's tokens and reads the rows of the tables
// for those that this rank computes.
func (m *forward) readRows(ctx context.Context, step step) error {
	e := &m.c.Engram
	if !e.exists() {
		return nil
	}
	for _, g := range step.Segments {
		for i, id := range step.IDs[g.First : g.First+g.N] {
			g.Cache.remember(g.Pos+i, int32(e.Map[id]))
		}
	}
	if !kernels.ValuesMatter(m.Backend) {
		return nil
	}
	if m.tables == nil {
		var err error
		if m.tables, err = openTables(m.file, e, &m.counts); err != nil {
			return err
		}
	}
	columns, folded := e.columns(), make([]uint64, e.Gram)
	hashed := make([]uint64, columns)
	wants := make([]want, 0, len(e.Layers)*step.Own.Len()*columns)
	for _, whole := range step.Segments {
		g, ok := whole.Part(step.Own)
		if !ok {
			continue
		}
		for i := range g.N {
			g.Cache.folded(folded, g.Pos+i, e.Pad)
			for l, layer := range e.Layers {
				if layer < step.Layers.Start || layer >= step.Layers.End {
					continue
				}
				e.hash(hashed, l, folded)
				at := (l*m.MaxTokens + g.First + i - step.Own.Start) * e.values()
				for j, row := range hashed {
					wants = append(wants, want{key(l, row), m.scratch.rows[at+j*e.Width:][:e.Width]})
				}
			}
		}
	}
	err := m.tables.read(ctx, wants)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("step cancelled before layer 0: %w", context.Cause(ctx))
	}
	if err != nil && m.grouped { // the other ranks wait for this one, which fails
		return fmt.Errorf("engram: %w", err)
	}
	if err != nil {
		return fmt.Errorf("engram: %w: %w", model.ErrStorage, err)
	}
	return nil
}
