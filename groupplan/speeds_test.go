package groupplan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// TestMeasuredSpeeds: a rank that computes experts at half the speed gets half of them
// where copies let it, in this epoch and in the next; ranks that are alike but for noise
// get the same. With sum all do.
func TestMeasuredSpeeds(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	members := []cluster.Hello{{Rank: 0, Threads: 1, Memory: 1 << 30}, {Rank: 1, Threads: 1, Memory: 1 << 30, Process: "a"}}
	spread, reduce, share := 0.0, parallel.Exact, "auto"
	slower := func(by float64) []int {
		of, err := ParseShare(share)
		require.NoError(t, err)
		costs := costsOf(2, 1e-6, 1e-10)
		costs.Models[1].Other = &cost.Line{Fixed: by * 1e-6, PerByte: by * 1e-9, PerWork: by * 1e-10, Points: 5, Sizes: 5}
		costs.Models[0].Spread = spread
		var text strings.Builder
		p := NewPlanner(Options{Model: f, Sequences: 1, MaxTokens: 64, Reduce: reduce, Share: of}, &text)
		defer func() { require.NoError(t, p.Close()) }()
		s, err := p.Plan(members, replica.Past{})
		require.NoError(t, err)
		require.True(t, s.Measure)
		c := p.Choose(t.Context(), costs, append(s.Alternatives[:0:0], s.Placement, s.Alternatives[0]))
		speeds := speedsOf(p.Last())
		if reduce == parallel.Exact {
			require.Equal(t, c.Speeds, speeds)
			require.Equal(t, speeds[0] != speeds[1], strings.Contains(text.String(), "of 16 for the fastest: rank 0 "))
		}
		again, err := p.Plan(members, replica.Past{})
		require.NoError(t, err)
		require.False(t, again.Measure)
		require.Equal(t, p.Last().Settings.Placement, again.Placement)
		require.Equal(t, speeds, speedsOf(p.Last()), text.String())
		return speeds
	}
	require.Equal(t, []int{1, 1}, slower(1))
	require.Equal(t, []int{1, 1}, slower(1.2))
	require.Equal(t, []int{16, 8}, slower(2))
	require.Equal(t, []int{5, 16}, slower(0.3))
	spread = 0.3 // 1.25 times 1.3 twice is more than 2
	require.Equal(t, []int{1, 1}, slower(2))
	spread, share = 0, "auto:3,1"
	require.Equal(t, []int{1, 1}, slower(1), "the numbers of --share say nothing of ranks that were measured")
	require.Equal(t, []int{16, 8}, slower(2))
	share, reduce = "auto", parallel.Sum
	require.Equal(t, []int{1, 1}, slower(2), "which rank adds a term decides last bits, so no measurement does")

	require.Nil(t, measuredSpeeds(NewPlanner(Options{}, nil).Last().Model, nil))

	o := Options{Model: f, Sequences: 1, MaxTokens: 64, Context: 512}
	plan, err := arch.Plan(f, o.open(), 1)
	require.NoError(t, err)
	gpu := &cost.Line{PerByte: 1e-12}
	require.Equal(t, []int{16, 8}, measuredSpeeds(plan, []cost.Model{{Other: gpu, CPU: &cost.Line{PerByte: 1e-9}}, {Other: gpu, CPU: &cost.Line{PerByte: 2e-9}}}), "beside equal GPUs")
}
