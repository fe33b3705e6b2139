package groupplan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/model/builtin"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// costsOf is the costs of a group whose exchanges take so many seconds, and whose ranks
// compute at a gigabyte and 10^10 multiplications a second.
func costsOf(ranks int, latency, perByte float64) calibrate.Costs {
	l := cost.Line{Fixed: latency, PerByte: perByte, Points: 5, Sizes: 5}
	c := calibrate.Costs{Links: cost.Links{"all_sum": l, "all_max": l, "reduce_scatter": l, "all_gather_v": l, "gather": l, cost.Message: l}}
	for range ranks {
		c.Models = append(c.Models, cost.Model{Other: &cost.Line{Fixed: 1e-6, PerByte: 1e-9, PerWork: 1e-10, Points: 5, Sizes: 5}})
	}
	return c
}

// arithmetic is the costs of ranks whose ops take their multiplications only.
func arithmetic(c calibrate.Costs) calibrate.Costs {
	for r := range c.Models {
		c.Models[r].Other = &cost.Line{PerWork: 1e-10, Points: 5, Sizes: 5}
	}
	return c
}

// TestDecide: with exchanges that cost nothing all is divided, with slow ones the
// experts; what decides is printed.
func TestDecide(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	members := []cluster.Hello{{Rank: 0, Threads: 1}, {Rank: 1, Threads: 1, Process: "a"}}
	for name, test := range map[string]struct {
		costs calibrate.Costs
		want  parallel.Share
		rows  int
	}{
		"no cost": {costsOf(2, 0, 0), parallel.ShareAll, 2},
		"exchanges as long as what they can hide behind": {arithmetic(costsOf(2, 1e-6, 2e-9)), parallel.ShareExperts, 2},
		"1 Gbit/s and 200 us":                            {costsOf(2, 5e-4, 8e-9), parallel.ShareExperts, 0},
		"nothing was measured":                           {calibrate.Costs{Models: make([]cost.Model, 2), Links: cost.Links{}}, parallel.ShareExperts, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			p := NewPlanner(Options{Model: f, Sequences: 1, MaxTokens: 64, Share: Share{Auto: true}}, &text)
			defer func() { require.NoError(t, p.Close()) }()
			s, err := p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.True(t, s.Measure, "a new group is measured")
			require.Len(t, s.Alternatives, 1)
			placements := []parallel.Placement{s.Placement, s.Alternatives[0]}
			c := p.Choose(t.Context(), test.costs, placements)
			require.Equal(t, test.want, parallel.Share(c.Placement), text.String())
			require.Equal(t, test.rows, c.Rows, text.String())
			chosen := c.Of(placements)
			require.Equal(t, chosen, p.Last().Settings.Placement)
			require.Contains(t, text.String(), "--share auto chose "+test.want.String())

			// The same members are not measured again, and have the same.
			s, err = p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.False(t, s.Measure)
			require.Empty(t, s.Alternatives)
			require.Equal(t, chosen, s.Placement)

			// A newcomer is measured before steps run, and taken to be like the
			// leader once they have.
			members := []cluster.Hello{members[0], {Rank: 1, Threads: 1, Process: "b"}}
			s, err = p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.True(t, s.Measure)
			s, err = p.Plan(members, replica.Past{Ran: true, Held: 1 << 10})
			require.NoError(t, err)
			require.False(t, s.Measure)
			require.Equal(t, chosen, s.Placement)
		})
	}
}

// TestBetter: more exchanges must gain something.
func TestBetter(t *testing.T) {
	of := func(prefill, decode float64) expected {
		return expected{chunk: 512, prefill: cost.Estimate{Seconds: prefill}, decode: cost.Estimate{Seconds: decode}}
	}
	for _, x := range []struct {
		experts, all expected
		want         int
	}{
		{of(1, 0.1), of(0.6, 0.08), 1},
		{of(1, 0.1), of(0.99, 0.099), 0}, // one per cent
		{of(1, 0.1), of(0.5, 0.2), 0},    // 128 tokens at twice the time
		{of(10, 0.01), of(5, 0.02), 1},   // a prompt that weighs more
	} {
		got, why := better(x.experts, x.all)
		require.Equal(t, x.want, got, why)
	}
	unknown := of(0.1, 0.01)
	unknown.decode.Unknown = []string{"Compress"}
	got, why := better(of(1, 1), unknown)
	require.Zero(t, got)
	require.Contains(t, why, "[Compress]")
}
