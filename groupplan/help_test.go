package groupplan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

func TestShareHelper(t *testing.T) {
	for _, text := range []string{"helper", "helper:1,3"} {
		s, err := ParseShare(text)
		require.NoError(t, err)
		require.True(t, s.Helper)
		require.Equal(t, text, s.String())
		require.NoError(t, s.Check(2))
		require.ErrorContains(t, Stages{Count: 2}.Check(2, s), "--stages and --share helper are two ways")
	}
	s, err := ParseShare("helper")
	require.NoError(t, err)
	require.ErrorContains(t, s.Check(3), "--share helper is for two ranks: rank 1 helps rank 0 with prompts; there are 3. Use --share auto or --stages")
	s, err = ParseShare("helper:memory")
	require.NoError(t, err)
	require.ErrorContains(t, s.Check(2), "give the speeds of both ranks")
}

// ofSpeed are the costs of two ranks of which the second is so many times as fast, on a link with
// this latency and these seconds a byte.
func ofSpeed(times, latency, perByte float64) calibrate.Costs {
	c := costsOf(2, latency, perByte)
	for i, faster := range []float64{1, times} {
		c.Models[i].Other = &cost.Line{PerByte: 1e-9 / faster, PerWork: 1e-9 / faster, Points: 5, Sizes: 5}
	}
	return c
}

// TestHelper: the helper gets as many layers as make a prompt fastest, and no step where the
// link costs what it saves; the ranks are measured once.
func TestHelper(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	whole, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 512}, 1)
	require.NoError(t, err)
	members := []cluster.Hello{{Rank: 0, Size: 2, Threads: 1}, {Rank: 1, Size: 2, Threads: 1, Process: "a"}}
	o := Options{Model: f, Sequences: 1, MaxTokens: 512, Context: 4096, Share: Share{Helper: true}}
	for title, test := range map[string]struct {
		costs calibrate.Costs
		first func(first int) bool
		says  string
	}{
		"three times as fast": {ofSpeed(3, 1e-4, 3e-9), func(n int) bool { return n <= whole.Layers/2 }, " t/s of prefill expected, "},
		"as fast":             {ofSpeed(1, 1e-4, 3e-9), func(n int) bool { return n >= whole.Layers/2-1 && n <= whole.Layers/2+1 }, "x of rank 0 alone"},
		"much slower":         {ofSpeed(0.01, 1e-4, 3e-9), nil, "no step goes through the helper"},
		"a slow link":         {ofSpeed(3, 1e-2, 1e-3), nil, "no step goes through the helper, because rank 0 alone takes"},
		"not measured":        {calibrate.Costs{Missing: "a rank has no clock"}, func(n int) bool { return n == 1 }, "not measured: the ranks could not be measured: a rank has no clock"},
	} {
		t.Run(title, func(t *testing.T) {
			var text strings.Builder
			p := NewPlanner(o, &text)
			defer func() { require.NoError(t, p.Close()) }()
			s, err := p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.True(t, s.Measure)
			require.True(t, s.Helper)
			require.NoError(t, s.Placement.Check(s.Placement.Sizes(), 2))
			c := p.Choose(t.Context(), test.costs, p.Last().placements())
			chosen := c.Of([]parallel.Placement{s.Placement})
			require.Equal(t, chosen, p.Last().Settings.Placement)
			require.Contains(t, p.Expected(), test.says)
			require.Contains(t, text.String(), p.Expected()+"\n")
			require.Equal(t, 1, strings.Count(text.String(), "expected in memory"), "one table of ranks")
			if test.first == nil {
				require.Zero(t, chosen[1].Help.Rows)
			} else {
				require.True(t, test.first(chosen[1].Layers.Start), "%v", chosen[1].Layers)
				require.Positive(t, chosen[1].Help.Missing)
				require.LessOrEqual(t, chosen[1].Help.Rows, 512)
				require.Equal(t, chosen[1].Layers, p.Last().Ranks[1].Part.Layers)
			}
			// Rank 0 continues alone, and another helper gets the same.
			one, err := p.Plan(members[:1], replica.Past{Ran: true, Held: 1 << 10})
			require.NoError(t, err)
			require.Len(t, one.Placement, 1)
			require.True(t, one.Helper)
			again, err := p.Plan([]cluster.Hello{members[0], {Rank: 1, Size: 2, Threads: 1, Process: "b"}}, replica.Past{Ran: true, Held: 1 << 10})
			require.NoError(t, err)
			require.False(t, again.Measure)
			if title != "not measured" {
				require.Equal(t, chosen, again.Placement)
				require.Contains(t, p.Expected(), "--share helper keeps ")
			}
			_, known, err := p.Expect(t.Context(), calibrate.Work{Rows: 256})
			require.NoError(t, err)
			require.Equal(t, title != "not measured", known)
		})
	}
}

// TestHelperMemory: rank 0 needs the whole model, the helper its layers alone; what the helper
// has no room for shortens its layers, and then the budget.
func TestHelperMemory(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const mib = 1 << 20
	members := func(memory ...int64) (all []cluster.Hello) {
		for i, m := range memory {
			all = append(all, cluster.Hello{Rank: i, Size: len(memory), Memory: m, Threads: 1})
		}
		return all
	}
	o := Options{Model: f, Sequences: 1, MaxTokens: 64, Context: 4096, Share: Share{Helper: true}}
	p, err := o.Plan(members(400*mib, 400*mib), 0)
	require.NoError(t, err)
	require.Equal(t, 1, p.Ranks[1].Part.Layers.Start)
	require.Equal(t, p.Model.Experts, p.Ranks[0].ExpertBytes)
	require.Less(t, p.Ranks[1].DenseBytes, p.Ranks[0].DenseBytes)
	require.Contains(t, p.Text, "has the whole model; its helper ")
	few, err := o.Plan(members(400*mib, p.Ranks[1].Resident()-1), 0)
	require.NoError(t, err)
	require.Greater(t, few.Ranks[1].Part.Layers.Start, 1)
	last := few.helper
	ranks, err := last(p.Model.Layers - 1)
	require.NoError(t, err)
	_, err = o.Plan(members(400*mib, ranks.Ranks[1].Resident()-mib), 0)
	require.ErrorContains(t, err, "rank 1 needs")
	_, err = o.Plan(members(p.Ranks[0].Resident()-mib, 400*mib), 0)
	require.ErrorContains(t, err, "rank 0 needs")
	o.Share.Shares.Numbers = []float64{1, 3}
	given, err := o.Plan(members(400*mib, 400*mib), 0)
	require.NoError(t, err)
	require.LessOrEqual(t, given.Ranks[1].Part.Layers.Start, p.Model.Layers/2)
	o.DraftFile = f
	_, err = o.Plan(members(400*mib, 400*mib), 0)
	require.ErrorContains(t, err, "use --drafts text or off")
}
