package bench

import (
	"context"
	"math"
	"time"

	"ringmaster/model/calibrate"
	"ringmaster/parallel/cost"
)

// expect asks the cost model what a repetition of m takes, in a group that has been
// measured. Steps of several sequences or with drafts are not traced.
func (b *bench) expect(ctx context.Context, m *Measurement) error {
	if b.t.Group == nil || m.Sequences > 1 || m.Drafts > 0 {
		return nil
	}
	ask := func(rows, pos, times int) error {
		e, known, err := b.t.Group.Expect(ctx, calibrate.Work{Rows: rows, Pos: pos})
		if err != nil || !known {
			return err
		}
		m.ExpectedS += float64(times) * e.Seconds
		m.expectRanks(e, float64(times))
		m.ExpectedError = math.Max(m.ExpectedError, e.Error)
		return nil
	}
	if m.What == "decode" {
		return ask(1, m.Depth+m.N/2, m.N)
	}
	for pos := 0; pos < m.N; {
		n := min(m.N-pos, b.t.Model.Info().MaxTokens)
		if err := ask(n, pos, 1); err != nil {
			return err
		}
		pos += n
	}
	return nil
}

// expectOps sets or clears what the profile expects of each op, in a group that has been
// measured.
func (b *bench) expectOps(on bool) {
	if b.t.Group == nil {
		return
	}
	m, known := b.t.Group.LeaderCosts()
	if !on || !known {
		b.t.Record.Show(nil, false)
		return
	}
	b.t.Record.Show(func(op cost.Op, run func()) {
		s, _ := m.Seconds(op)
		b.t.Profile.Profile.Expect(time.Duration(s * float64(time.Second)))
		run()
	}, true)
}

// ExpectedTimes is what a rank is expected to spend in a repetition, in seconds.
type ExpectedTimes struct {
	Compute float64 `json:"compute_s"`
	Waiting float64 `json:"waiting_s"` // in exchanges, including the time that data moves
}

// expectRanks adds an estimate, times times, to the expectation of each rank.
func (m *Measurement) expectRanks(e cost.Estimate, times float64) {
	if m.ExpectedRanks == nil {
		m.ExpectedRanks = make([]ExpectedTimes, len(e.Compute))
	}
	for r := range m.ExpectedRanks {
		m.ExpectedRanks[r].Compute += times * e.Compute[r]
		m.ExpectedRanks[r].Waiting += times * e.Waiting[r]
	}
}
