package deepseek2

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
	for i := range m.w.layers {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		l := &m.w.layers[i]
		b.RMSNorm(s.h, s.x, l.attnNorm, rows, c.Embd, c.RMSEps)
		if err := m.attention(ctx, l, i, step); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		b.Add(s.x, s.x, s.y, rows*c.Embd)

		b.RMSNorm(s.h, s.x, l.ffnNorm, rows, c.Embd, c.RMSEps)
		if l.experts == nil {
			m.dense(l, rows)
			m.meter.EndLayer(i)
		} else {
			if err := m.routed.Begin(ctx, i, l.experts, s.h, step.IDs, rows); err != nil {
				return nil, err
			}
			if err := m.routed.Finish(ctx, s.y); err != nil {
				return nil, err
			}
		}
		b.Add(s.x, s.x, s.y, rows*c.Embd)
	}
	return m.head(ctx, step.Wanted)
}

// dense encodes the feed-forward network of a leading layer, from h to y [rows][D].
// Every rank computes all of it.
func (m *forward) dense(l *layer, rows int) {
	b, s := m.b, &m.scratch
	b.MatMul(s.h, rows, kernels.Product{W: l.gate, Out: s.gate}, kernels.Product{W: l.up, Out: s.up})
	b.SwiGLU(s.gate, s.gate, s.up, rows*m.c.DenseFF, 0)
	b.MatMul(s.gate, rows, kernels.Product{W: l.down, Out: s.y})
}

// head computes the logits of rows [wanted][V], if any, and flushes. A rank computes
// its part of the vocabulary; rank 0 gets all of it.
func (m *forward) head(ctx context.Context, rows []int32) ([][]float32, error) {
	b, c, s := m.b, m.c, &m.scratch
	n := len(rows)
	if n == 0 || !m.logits.Takes() {
		return nil, b.Flush()
	}
	copy(s.picks, rows)
	b.Gather(s.picked, s.x, s.picks[:n], c.Embd)
	b.RMSNorm(s.picked, s.picked, m.w.outputNorm, n, c.Embd, c.RMSEps)
	return m.logits.Run(ctx, s.picked, n, m.w.output)
}
