package deepseek2

import (
	"context"
	"fmt"

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
	b, c, s, own, n := m.b, m.c, &m.scratch, step.Own, step.Own.Len()
	x, h, y := s.x[own.Start*c.Embd:], s.h[own.Start*c.Embd:], s.y[own.Start*c.Embd:]
	b.Embed(x, m.w.embd, step.IDs[own.Start:own.End])
	for i := range m.w.layers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		l := &m.w.layers[i]
		b.RMSNorm(h, x, l.attnNorm, n, c.Embd, c.RMSEps)
		if err := m.attention(ctx, l, i, step); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		b.Add(x, x, y, n*c.Embd)

		b.RMSNorm(h, x, l.ffnNorm, n, c.Embd, c.RMSEps)
		if l.experts == nil {
			if err := m.dense(ctx, l, step); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			m.meter.EndLayer(i)
		} else {
			if err := m.routed.Begin(ctx, i, l.experts, s.h, step.IDs, step.Rows, step.Cut); err != nil {
				return err
			}
			if err := m.routed.Finish(ctx, y); err != nil {
				return err
			}
		}
		b.Add(x, x, y, n*c.Embd)
	}
	if err := m.gather.Some(ctx, step.Cut, step.Kept, parallel.FieldOf(s.x, c.Embd)); err != nil {
		return fmt.Errorf("output head: %w", err)
	}
	return nil
}

// Second implements decoder.Network.
func (m *forward) Second(rows int) decoder.Layers[*cache] {
	s := *m
	decoder.Behind(s.scratch.buffers(m.c, 1), rows)
	s.routed, s.heads, s.gather = m.routed.Second(rows), m.heads.Second(rows), m.gather.Second()
	if m.ffn != nil {
		s.ffn = m.ffn.Second(rows)
	}
	return &s
}

// Head implements decoder.Network: the logits of rows [wanted][V]. A rank computes its part
// of the vocabulary; rank 0 gets all of it.
func (m *forward) Head(ctx context.Context, rows []int32) ([][]float32, error) {
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
