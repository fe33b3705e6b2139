package node

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel"
	"ringmaster/replica"
)

// TestSlowRanks: which ranks are named as slow, after how many looks at their times.
func TestSlowRanks(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		experts []int           // of each rank
		step    []time.Duration // that each rank computes in a step
		steps   uint64          // between two looks
		slow    string          // what the log has, "" for nothing
	}{
		"alike":                            {[]int{8, 8}, []time.Duration{20 * ms, 30 * ms}, 100, ""},
		"rank 1 of two":                    {[]int{8, 8}, []time.Duration{20 * ms, 70 * ms}, 100, "rank=1 host=studio-b step=70ms planned=20ms ratio=3.5"},
		"rank 0 of two":                    {[]int{8, 8}, []time.Duration{70 * ms, 20 * ms}, 100, "rank=0 host=studio-b step=70ms planned=20ms"},
		"rank 2 of three":                  {[]int{8, 8, 8}, []time.Duration{20 * ms, 25 * ms, 90 * ms}, 100, "rank=2 host=studio-b step=90ms planned=25ms"},
		"one fast rank of three":           {[]int{8, 8, 8}, []time.Duration{20 * ms, 90 * ms, 95 * ms}, 100, ""},
		"four times the experts":           {[]int{8, 32}, []time.Duration{20 * ms, 70 * ms}, 100, ""},
		"four times the experts, and slow": {[]int{8, 32}, []time.Duration{20 * ms, 250 * ms}, 100, "rank=1 host=studio-b step=250ms planned=80ms"},
		"less experts, yet slow":           {[]int{32, 8}, []time.Duration{20 * ms, 70 * ms}, 100, "rank=1"},
		"no experts on one rank":           {[]int{8, 0}, []time.Duration{20 * ms, 20 * ms}, 100, ""},
		"too few steps":                    {[]int{8, 8}, []time.Duration{20 * ms, 200 * ms}, leastSteps - 1, ""},
		"too little time":                  {[]int{8, 8}, []time.Duration{20 * time.Microsecond, 100 * time.Microsecond}, 100, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := slowRanks{log: slog.New(slog.NewTextHandler(&log, nil)), hosts: func(int) string { return "studio-b" }, found: map[int]int{}}
			var p parallel.Placement
			var members []int
			at := 0
			for r, n := range c.experts {
				p = append(p, parallel.Part{Experts: parallel.Range{Start: at, End: at + n}})
				at += n
				members = append(members, r)
			}
			var steps uint64
			look := func(epoch uint32) {
				reports := make([]replica.Report, len(members))
				for r, d := range c.step {
					reports[r] = replica.Report{Rank: r, Epoch: epoch, Steps: steps,
						Layers: []parallel.LayerStats{{Compute: d * time.Duration(steps) / 2}, {Compute: d * time.Duration(steps) / 2}}}
				}
				s.look(reports, members, p)
				steps += c.steps
			}
			look(1)
			look(1)
			look(2) // in another epoch nothing is compared
			require.Empty(t, log.String(), "one look is not enough")
			for range 3 {
				look(2)
			}
			if c.slow == "" {
				require.Empty(t, log.String())
				return
			}
			require.Contains(t, log.String(), "a rank is much slower than planned")
			require.Contains(t, log.String(), c.slow)
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("WARN")), "once")
		})
	}
}
