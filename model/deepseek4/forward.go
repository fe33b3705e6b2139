package deepseek4

import (
	"context"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// step is a step of the decoder with this architecture's KV caches.
type (
	step    = decoder.Step[*cache]
	segment = decoder.Segment[*cache]
)

// Layers implements decoder.Network.
func (m *forward) Layers(ctx context.Context, step step) error {
	c, own, n := m.c, step.Own, step.Own.Len()
	if step.Layers.Start == 0 {
		ids := m.scratch.ids[:n*c.Streams] // one for each stream, which all begin alike
		for i := range ids {
			ids[i] = step.IDs[own.Start+i/c.Streams]
		}
		m.Backend.Embed(m.H[own.Start*c.Streams*c.Embd:], m.w.embd, ids)
	}
	if err := m.layers(ctx, step); err != nil {
		return err
	}
	return m.Leave(ctx, step.Cut, step.Kept, parallel.FieldOf(m.H, c.Streams*c.Embd))
}

// Carried implements decoder.Network: the streams.
func (m *forward) Carried() []decoder.Carried {
	return []decoder.Carried{{Data: m.H, Width: m.c.Streams * m.c.Embd}}
}

// layers encodes the layers of a step: the streams H [rows][S][D] of its rows, in place.
func (m *forward) layers(ctx context.Context, step step) error {
	c, own, n := m.c, step.Own, step.Own.Len()
	y := m.Y[own.Start*c.Embd:]
	for i := step.Layers.Start; i < step.Layers.End; i++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		before := y // the output of the layer before
		if i == step.Layers.Start {
			before = nil
		}
		if err := m.layer(ctx, i, step, before, y); err != nil {
			return err
		}
	}
	m.Backend.HCExpand(m.H[own.Start*c.Streams*c.Embd:], y, m.Post, m.Comb, n, c.Streams, c.Embd)
	return nil
}

// layer encodes a layer but for the end of its FFN: its output y [rows][D], by which the streams
// are still to be expanded. First it expands them by that of the layer before, nil for none.
func (m *forward) layer(ctx context.Context, i int, step step, before, y []float32) error {
	l, own := &m.w.layers[i], step.Own
	m.Mix(&l.hcAttn, before, m.Pre, m.Pre, l.attnNorm, own)
	if err := m.attention(ctx, l, i, step); err != nil {
		return fmt.Errorf("layer %d: %w", i, err)
	}
	m.Mix(&l.hcFFN, y, m.Pre, m.Pre, l.ffnNorm, own)
	if err := m.Routed.Begin(ctx, i, &l.experts, m.X, step.IDs, step.Rows, step.Cut); err != nil {
		return err
	}
	return m.Routed.Finish(ctx, y)
}

// Head implements decoder.Network: the logits of rows [wanted][V]. A rank computes its part
// of the vocabulary; rank 0 gets all of it.
func (m *forward) Head(ctx context.Context, rows []int32) ([][]float32, error) {
	b, c, x, n := m.Backend, m.c, m.scratch.headX, len(rows)
	streams := m.PickToRead(m.H, rows)
	if streams == nil {
		return nil, b.Flush()
	}
	b.HCHead(kernels.HCHeadArgs{
		Out: x, H: streams, Fn: m.w.headHC.Fn, Base: m.w.headHC.Base, Scale: m.w.headHC.Scale,
		Rows: n, Streams: c.Streams, Cols: c.Embd, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	b.RMSNorm(x, x, m.w.outputNorm, n, c.Embd, c.RMSEps)
	return m.Logits.Run(ctx, x, n, m.w.output)
}
