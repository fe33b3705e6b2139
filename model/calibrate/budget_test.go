package calibrate_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// clock is a time that passes with work: a little whenever it is read, and as much as a
// device takes for an op.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time              { return time.Unix(0, c.now.Add(int64(time.Microsecond))) }
func (c *clock) pass(d time.Duration)        { c.now.Add(int64(d)) }
func (c *clock) elapsed() time.Duration      { return time.Duration(c.now.Load()) }
func (c *clock) rows(d time.Duration, n int) { c.pass(time.Duration(n) * d) }

// slow is a device on which a product of one row takes so long; it computes none.
type slow struct {
	kernels.Backend
	clock *clock
	row   time.Duration
}

func (b slow) MatMul(_ []float32, rows int, _ ...kernels.Product) {
	b.clock.rows(b.row, rows)
}

func (b slow) ExpertGateUp(_, _ []float32, _, _ kernels.Weight, _ float32, a kernels.ExpertArgs) {
	b.clock.rows(b.row, a.Rows*a.Used)
}

func (b slow) ExpertDown(_, _ []float32, _ kernels.Weight, a kernels.ExpertArgs) {
	b.clock.rows(b.row, a.Rows*a.Used)
}

// TestBudget: a group is measured within two seconds, on devices of any speed if their
// ops of a few rows take less than that. Ops that only a long step has are measured too.
func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		row time.Duration
		max int // tokens of a step
	}{
		"fast":                            {10 * time.Microsecond, 128},
		"slower":                          {300 * time.Microsecond, 128},
		"longer steps than there is time": {300 * time.Microsecond, 512},
		// Just fits: another pass over the ops of a token, or each op of 32 rows twice, would not.
		"hardly time for each op once":      {1950 * time.Microsecond, 128},
		"hardly time, and ops of long ones": {1950 * time.Microsecond, 512},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(parallel.Sum)
			o.MaxTokens = c.max
			clocks := make([]clock, 2)
			costs := measured(t, memory.Groups(2), o, clocks, func(r int) kernels.Backend { return slow{processor(t), &clocks[r], c.row} })
			if c.max >= 512 { // fewer rows choose all entries
				_, ok := costs.Models[0].Ops["IndexTopK"]
				require.True(t, ok, "the cost of IndexTopK is unknown")
			}
		})
	}
}
