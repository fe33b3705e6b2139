package decoder

import (
	"context"

	"ringmaster/parallel"
)

// Micro-batches: a step of many rows is cut in two, and the layers of both parts are
// interleaved, so that one computes during an exchange of the other. The bits are those
// of a prompt in other chunks, which are the same.

// Layers runs the layers of steps.
type Layers[C Cache] interface {
	// Layers runs the layers of a step with at least one row. Then every rank has the
	// hidden states of its own rows, and all have those of the rows Kept.
	Layers(ctx context.Context, s Step[C]) error
}

// prepared is a step with what Prepare has decided.
type prepared[C Cache] struct {
	Step[C]
	micro []Step[C] // its two micro-batches, nil if it is run in one
}

// split cuts a step, divided by rows or not, into two micro-batches: the first rows and
// the rest.
func (s *Step[C]) split(first int, divide func(*Step[C])) []Step[C] {
	out := make([]Step[C], 2)
	for i, rows := range []parallel.Range{{End: first}, {Start: first, End: s.Rows}} {
		part := Step[C]{Rows: rows.Len(), IDs: s.IDs[rows.Start:rows.End], Pos: s.Pos[rows.Start:rows.End], End: s.End}
		for _, g := range s.Segments {
			if g, ok := g.Part(rows); ok {
				g.First -= rows.Start
				part.Segments = append(part.Segments, g)
			}
		}
		divide(&part)
		if part.Cut != nil {
			part.Kept = nil
			for _, row := range s.Kept {
				if row := int(row); row >= rows.Start && row < rows.End {
					part.Kept = append(part.Kept, int32(row-rows.Start))
				}
			}
		}
		out[i] = part
	}
	return out
}

// run runs the layers of a step.
func (m *Model[C]) run(ctx context.Context, s *prepared[C]) error {
	if s.micro == nil {
		return m.network.Layers(ctx, s.Step)
	}
	second := m.network.Second(s.micro[0].Rows)
	return m.o.Meter.Turns().Interleave(
		func() error { return m.network.Layers(ctx, s.micro[0]) },
		func() error { return second.Layers(ctx, s.micro[1]) })
}

// Behind makes each variable begin so many rows later. The buffers are those of one row.
func Behind(buffers []Buffer, rows int) {
	for _, x := range buffers {
		if x.F32 != nil {
			*x.F32 = parallel.Behind(*x.F32, rows*x.Len)
		} else {
			*x.I32 = parallel.Behind(*x.I32, rows*x.Len)
		}
	}
}
