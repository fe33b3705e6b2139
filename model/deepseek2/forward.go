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
	c, s, own := m.c, &m.scratch, step.Own
	if step.Layers.Start == 0 {
		m.Backend.Embed(s.x[own.Start*c.Embd:], m.w.embd, step.IDs[own.Start:own.End])
	}
	for i := step.Layers.Start; i < step.Layers.End; i++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx))
		}
		if err := m.layer(ctx, i, step); err != nil {
			return err
		}
	}
	return m.Leave(ctx, step.Cut, step.Kept, parallel.FieldOf(s.x, c.Embd))
}

// Carried implements decoder.Network: the residual stream.
func (m *forward) Carried() []decoder.Carried {
	return []decoder.Carried{{Data: m.scratch.x, Width: m.c.Embd}}
}

// Splits implements decoder.Network: a layer without an indexer reads the positions that an
// earlier layer chose.
func (m *forward) Splits(layer int) bool { return m.c.Index.TopK == 0 || m.c.Index.has(layer) }

// layer encodes a layer: the residual stream x [rows][D] of this rank's rows, in place.
func (m *forward) layer(ctx context.Context, i int, step step) error {
	b, c, s, own, n := m.Backend, m.c, &m.scratch, step.Own, step.Own.Len()
	x, h, y := s.x[own.Start*c.Embd:], s.h[own.Start*c.Embd:], s.y[own.Start*c.Embd:]
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
		m.Meter.EndLayer(i)
	} else {
		if err := m.Routed.Begin(ctx, i, l.experts, s.h, step.IDs, step.Rows, step.Cut); err != nil {
			return err
		}
		if err := m.Routed.Finish(ctx, y); err != nil {
			return err
		}
	}
	b.Add(x, x, y, n*c.Embd)
	return nil
}

// Head implements decoder.Network: the logits of rows [wanted][V]. A rank computes its
// part of the vocabulary; rank 0 gets all of it.
func (m *forward) Head(ctx context.Context, rows []int32) ([][]float32, error) {
	x, n := m.Pick(m.scratch.x, rows), len(rows)
	if x == nil {
		return nil, m.Backend.Flush()
	}
	m.Backend.RMSNorm(x, x, m.w.outputNorm, n, m.c.Embd, m.c.RMSEps)
	return m.Logits.Run(ctx, x, n, m.w.output)
}
