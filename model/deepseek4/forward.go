package deepseek4

import (
	"context"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
)

// step is a step of the decoder with this architecture's KV caches.
type (
	step    = decoder.Step[*cache]
	segment = decoder.Segment[*cache]
)

// Run implements decoder.Network.
func (m *forward) Run(ctx context.Context, step step) ([][]float32, error) {
	b, c, s, rows := m.b, m.c, &m.scratch, step.Rows
	b.Embed(s.x, m.w.embd, step.IDs)
	b.HCInit(s.h, s.x, rows, c.Streams, c.Embd)
	for i := range m.w.layers {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		l := &m.w.layers[i]
		m.mix(&l.hcAttn, l.attnNorm, rows)
		if err := m.attention(ctx, l, i, step); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		b.HCExpand(s.h, s.y, s.post, s.comb, rows, c.Streams, c.Embd)

		m.mix(&l.hcFFN, l.ffnNorm, rows)
		if err := m.routed.Begin(ctx, i, &l.experts, s.x, step.IDs, rows); err != nil {
			return nil, err
		}
		if err := m.routed.Finish(ctx, s.y); err != nil {
			return nil, err
		}
		b.HCExpand(s.h, s.y, s.post, s.comb, rows, c.Streams, c.Embd)
	}
	return m.head(ctx, step.Wanted)
}

// mix encodes the coefficients of a hyper-connection (pre, post, comb) and the
// normalised input of its sub-layer, x [rows][D].
func (m *forward) mix(hc *hyper, norm []float32, rows int) {
	c, s := m.c, &m.scratch
	m.b.HCMix(kernels.HCMixArgs{
		H: s.h, Fn: hc.fn, Base: hc.base, Scale: hc.scale,
		Pre: s.pre, Post: s.post, Comb: s.comb,
		Rows: rows, Streams: c.Streams, Cols: c.Embd,
		Iterations: c.Sinkhorn, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	m.b.HCCollapse(s.x, s.h, s.pre, rows, c.Streams, c.Embd)
	m.b.RMSNorm(s.x, s.x, norm, rows, c.Embd, c.RMSEps)
}

// head computes the logits of rows [wanted][V], if any, and flushes. A rank computes
// its part of the vocabulary; rank 0 gets all of it.
func (m *forward) head(ctx context.Context, rows []int32) ([][]float32, error) {
	b, c, s := m.b, m.c, &m.scratch
	n := len(rows)
	if n == 0 || !m.logits.Takes() {
		return nil, b.Flush()
	}
	copy(s.rows, rows)
	b.Gather(s.picked, s.h, s.rows[:n], c.Streams*c.Embd)
	b.HCHead(kernels.HCHeadArgs{
		Out: s.headX, H: s.picked, Fn: m.w.headHC.fn, Base: m.w.headHC.base, Scale: m.w.headHC.scale,
		Rows: n, Streams: c.Streams, Cols: c.Embd, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	b.RMSNorm(s.headX, s.headX, m.w.outputNorm, n, c.Embd, c.RMSEps)
	return m.logits.Run(ctx, s.headX, n, m.w.output)
}
