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
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	b.Embed(s.x, m.w.embd, step.IDs[own.Start:own.End])
	b.HCInit(s.h[own.Start*c.Streams*c.Embd:], s.x, n, c.Streams, c.Embd)
	for i := range m.w.layers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		if err := m.layer(ctx, i, step); err != nil {
			return err
		}
	}
	if err := m.Gather.Some(ctx, step.Cut, step.Kept, parallel.FieldOf(s.h, c.Streams*c.Embd)); err != nil {
		return fmt.Errorf("output head: %w", err)
	}
	return nil
}

// layer encodes a layer: the streams h [rows][S][D] of this rank's rows, in place.
func (m *forward) layer(ctx context.Context, i int, step step) error {
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	h, y := s.h[own.Start*c.Streams*c.Embd:], s.y[own.Start*c.Embd:]
	l := &m.w.layers[i]
	m.mix(&l.hcAttn, l.attnNorm, own)
	if err := m.attention(ctx, l, i, step); err != nil {
		return fmt.Errorf("layer %d: %w", i, err)
	}
	b.HCExpand(h, y, s.post, s.comb, n, c.Streams, c.Embd)

	m.mix(&l.hcFFN, l.ffnNorm, own)
	if err := m.Routed.Begin(ctx, i, &l.experts, s.x, step.IDs, step.Rows, step.Cut); err != nil {
		return err
	}
	if err := m.Routed.Finish(ctx, y); err != nil {
		return err
	}
	b.HCExpand(h, y, s.post, s.comb, n, c.Streams, c.Embd)
	return nil
}

// mix encodes the coefficients of a hyper-connection (pre, post, comb) and the
// normalised input of its sub-layer, x, of some rows of h [rows][S][D].
func (m *forward) mix(hc *hyper, norm []float32, rows parallel.Range) {
	c, s, n := m.c, &m.scratch, rows.Len()
	h, x := s.h[rows.Start*c.Streams*c.Embd:], s.x[rows.Start*c.Embd:]
	m.Backend.HCMix(kernels.HCMixArgs{
		H: h, Fn: hc.fn, Base: hc.base, Scale: hc.scale,
		Pre: s.pre, Post: s.post, Comb: s.comb,
		Rows: n, Streams: c.Streams, Cols: c.Embd,
		Iterations: c.Sinkhorn, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	m.Backend.HCCollapse(x, h, s.pre, n, c.Streams, c.Embd)
	m.Backend.RMSNorm(x, x, norm, n, c.Embd, c.RMSEps)
}

// Head implements decoder.Network: the logits of rows [wanted][V]. A rank computes its part
// of the vocabulary; rank 0 gets all of it.
func (m *forward) Head(ctx context.Context, rows []int32) ([][]float32, error) {
	b, c, x, n := m.Backend, m.c, m.scratch.headX, len(rows)
	streams := m.Pick(m.scratch.h, rows)
	if streams == nil {
		return nil, b.Flush()
	}
	b.HCHead(kernels.HCHeadArgs{
		Out: x, H: streams, Fn: m.w.headHC.fn, Base: m.w.headHC.base, Scale: m.w.headHC.scale,
		Rows: n, Streams: c.Streams, Cols: c.Embd, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	b.RMSNorm(x, x, m.w.outputNorm, n, c.Embd, c.RMSEps)
	return m.Logits.Run(ctx, x, n, m.w.output)
}
