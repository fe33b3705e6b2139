package main

import (
	"context"
	"math"

	"ringmaster/model/calibrate"
)

// expect asks the cost model what a repetition of m takes, in a group that has been
// measured. Several sequences in a step are not traced.
func (b *bench) expect(ctx context.Context, m *measurement) error {
	p := b.o.costs.placement()
	if b.l.group == nil || p == nil || m.Sequences > 1 {
		return nil
	}
	ask := func(rows, pos, times int) error {
		e, err := b.o.expect1(ctx, b.l.file, p, calibrate.Work{Rows: rows, Pos: pos})
		if err != nil {
			return err
		}
		m.ExpectedS += float64(times) * e.Seconds
		m.ExpectedError = math.Max(m.ExpectedError, e.Error)
		return nil
	}
	if m.What == "decode" {
		return ask(1, m.Depth+m.N/2, m.N)
	}
	for pos := 0; pos < m.N; {
		n := min(m.N-pos, b.l.model.Info().MaxTokens)
		if err := ask(n, pos, 1); err != nil {
			return err
		}
		pos += n
	}
	return nil
}
