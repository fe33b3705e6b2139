package deepseek2

import (
	"context"

	"ringmaster/moe"
	"ringmaster/parallel"
)

// dense encodes the dense FFN of a leading layer, from h [rows][D] to y [rows][D] of this
// rank's rows. If it is divided, a rank computes its segments for all rows and the
// outputs are combined; the rows are gathered first if the rows of the step are divided.
// Otherwise each rank computes all of it for its own rows. The error is the backend's or
// the group's.
func (m *forward) dense(ctx context.Context, l *layer, step step) error {
	c, s, rows, cut := m.c, &m.scratch, step.Own, step.Cut
	ffn := moe.FFN{Gate: l.gate, Up: l.up, Down: l.down, Segments: 1}
	y := s.y[step.Own.Start*c.Embd:]
	if m.DenseFFN == nil {
		whole := parallel.Range{End: 1}
		m.Backend.MatMul(s.h[rows.Start*c.Embd:], rows.Len(), ffn.Hidden(whole, s.gate, s.up))
		ffn.Output(m.Backend, whole, false, y, s.gate, rows.Len())
		return nil
	}
	if m.DenseFFN.Divided() {
		rows = parallel.Range{End: step.Rows}
	} else {
		cut = nil
	}
	if err := m.GatherRows(ctx, cut, parallel.FieldOf(s.h, c.Embd)); err != nil {
		return err
	}
	if own := m.DenseFFN.Own(); own.Len() > 0 {
		ffn.Segments = m.Sizes.Shared
		m.Backend.MatMul(s.h[rows.Start*c.Embd:], rows.Len(), ffn.Hidden(own, s.gate, s.up))
		ffn.Output(m.Backend, own, m.DenseFFN.Separate(), m.DenseFFN.Mine(y), s.gate, rows.Len())
	}
	if err := m.DenseFFN.Start(ctx, rows.Len(), cut); err != nil {
		return err
	}
	return m.DenseFFN.Finish(ctx, y)
}
