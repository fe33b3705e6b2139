package deepseek2

import (
	"context"

	"ringmaster/kernels"
	"ringmaster/parallel"
)

// dense encodes the feed-forward network of a leading layer, from h [rows][D] to
// y [rows][D] of this rank's rows. If it is divided, a rank computes its parts for all
// rows, which are gathered first if the rows of the step are divided, and the outputs are
// combined; else each rank computes all of it for its own rows. The error is the backend's
// or the group's.
func (m *forward) dense(ctx context.Context, l *layer, step step) error {
	c, s, rows, cut := m.c, &m.scratch, step.Own, step.Cut
	y := s.y[step.Own.Start*c.Embd:]
	if m.ffn == nil {
		m.hidden(l, parallel.Range{End: c.DenseFF}, rows)
		m.b.MatMul(s.gate, rows.Len(), kernels.Product{W: l.down, Out: y})
		return nil
	}
	if m.ffn.Divided() {
		rows = parallel.Range{End: step.Rows}
	} else {
		cut = nil
	}
	if cut != nil {
		if err := m.gather.Start(ctx, cut, parallel.FieldOf(s.h, c.Embd)); err != nil {
			return err
		}
		if err := m.gather.Finish(); err != nil {
			return err
		}
	}
	if own := m.ffn.Own(); own.Len() > 0 {
		m.denseParts(l, own, y, rows)
	}
	if err := m.ffn.Start(ctx, rows.Len(), cut); err != nil {
		return err
	}
	return m.ffn.Finish(ctx, y)
}

// denseParts encodes the outputs of some parts of the network, of some rows of h, where
// m.ffn takes them, which may be y.
func (m *forward) denseParts(l *layer, own parallel.Range, y []float32, rows parallel.Range) {
	parts, s := m.sizes.Shared, &m.scratch
	each := m.c.DenseFF / parts
	columns := parallel.Range{Start: own.Start * each, End: own.End * each}
	m.hidden(l, columns, rows)
	mine := m.ffn.Mine(y, rows.Len())
	if m.ffn.Separate() {
		m.b.MatMulGrouped(mine, s.gate, rows.Len(), l.down.ColumnGroups(parts).SliceRange(own.Start, own.End))
		return
	}
	m.b.MatMul(s.gate, rows.Len(), kernels.Product{W: l.down.ColumnRange(columns.Start, columns.End), Out: mine})
}

// hidden encodes some of the hidden activations of the network, of some rows of h, into
// gate [rows][columns].
func (m *forward) hidden(l *layer, columns, rows parallel.Range) {
	b, s := m.b, &m.scratch
	b.MatMul(s.h[rows.Start*m.c.Embd:], rows.Len(),
		kernels.Product{W: l.gate.RowRange(columns.Start, columns.End), Out: s.gate},
		kernels.Product{W: l.up.RowRange(columns.Start, columns.End), Out: s.up})
	b.SwiGLU(s.gate, s.gate, s.up, rows.Len()*columns.Len(), 0)
}
