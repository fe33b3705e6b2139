package groupplan

import (
	"log/slog"
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
	for title, test := range map[string]struct {
		costs calibrate.Costs
		want  int // of choiceNames
		rows  int
	}{
		"no cost": {costsOf(2, 0, 0), 1, 4},
		"exchanges as long as what they can hide behind": {arithmetic(costsOf(2, 1e-6, 2e-9)), 0, 4},
		"1 Gbit/s and 200 us":                            {costsOf(2, 5e-4, 8e-9), 0, 0},
		"50 Mbit/s and 10 ms":                            {costsOf(2, 1e-2, 160e-9), 2, 0},
		"nothing was measured":                           {calibrate.Costs{Models: make([]cost.Model, 2), Links: cost.Links{}}, 0, 0},
	} {
		t.Run(title, func(t *testing.T) {
			unmeasured := title == "nothing was measured"
			var text strings.Builder
			p := NewPlanner(Options{Model: f, Sequences: 1, MaxTokens: 64, Share: Share{Auto: true}}, &text)
			defer func() { require.NoError(t, p.Close()) }()
			s, err := p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.True(t, s.Measure, "a new group is measured")
			require.Len(t, s.Alternatives, 2)
			placements := append([]parallel.Placement{s.Placement}, s.Alternatives...)
			require.NotContains(t, text.String(), "expected in memory", "the table of ranks is that of the choice")
			c := p.Choose(t.Context(), test.costs, placements)
			require.Equal(t, test.want, c.Placement, text.String())
			require.Equal(t, test.rows, c.Rows, text.String())
			chosen := c.Of(placements)
			require.Equal(t, chosen, p.Last().Settings.Placement)
			require.Equal(t, 1, strings.Count(text.String(), "expected in memory"), "one table of ranks")
			name := choiceNames[test.want]
			if test.want < 2 {
				require.Contains(t, text.String(), "--share "+name+": ")
			} else {
				require.Len(t, chosen.Stages(), 2)
				require.Equal(t, c.SequenceBudget, p.Last().Settings.SequenceBudget)
				require.Positive(t, c.SequenceBudget)
				require.Nil(t, c.Speeds)
			}
			if unmeasured {
				require.Contains(t, p.Expected(), "--share auto divides the experts alone: the cost of [")
			} else {
				require.Contains(t, p.Expected(), "--share auto chose "+name+"; 2 ranks: ")
				require.Contains(t, p.Expected(), "x of one (prefill ")
			}
			require.Contains(t, text.String(), p.Expected()+"\n")

			// The same members are not measured again, and have the same.
			s, err = p.Plan(members, replica.Past{})
			require.NoError(t, err)
			require.False(t, s.Measure)
			require.Empty(t, s.Alternatives)
			require.Equal(t, chosen, s.Placement)
			if !unmeasured {
				require.Contains(t, p.Expected(), "--share auto keeps "+name)
			}

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

// TestFastestOf: more exchanges must gain something, and stages more.
func TestFastestOf(t *testing.T) {
	of := func(prefill, decode float64) expected {
		return expected{chunk: 512, prefill: cost.Estimate{Seconds: prefill}, decode: cost.Estimate{Seconds: decode}}
	}
	for _, x := range []struct {
		want int
		rows []expected
	}{
		{1, []expected{of(1, 0.1), of(0.6, 0.08)}},
		{0, []expected{of(1, 0.1), of(0.99, 0.099)}}, // one per cent
		{0, []expected{of(1, 0.1), of(0.5, 0.2)}},    // 128 tokens at twice the time
		{1, []expected{of(10, 0.01), of(5, 0.02)}},   // a prompt that weighs more
		{0, []expected{of(1, 0.1)}},
		{2, []expected{of(1, 0.1), of(2, 0.2), of(0.7, 0.07)}},
		{0, []expected{of(1, 0.1), of(2, 0.2), of(0.9, 0.09)}}, // a tenth
		{1, []expected{of(1, 0.1), of(0.8, 0.08), of(0.7, 0.07)}},
		{0, []expected{of(0.1, 0.01), of(0.2, 0.02), of(0.05, 0.005)}}, // less than a second
	} {
		require.Equal(t, x.want, fastestOf(x.rows), "%+v", x)
	}
	unknown := of(0.1, 0.01)
	unknown.decode.Unknown = []string{"Compress"}
	require.ErrorContains(t, unknown.known(), "[Compress]")
	require.NoError(t, of(1, 1).known())
}

// TestSlowerThanOne: a group that is expected to be slower than its fastest rank alone
// serves, and says by how much; one that does not fit that rank says so instead.
func TestSlowerThanOne(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	choose := func(costs calibrate.Costs, members ...cluster.Hello) (*Planner, string, string) {
		var text, log strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		p := NewPlanner(Options{Model: f, Sequences: 1, Context: 4096, MaxTokens: 64, Share: Share{Auto: true}}, &text)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		s, err := p.Plan(members, replica.Past{})
		require.NoError(t, err)
		p.Choose(t.Context(), costs, append([]parallel.Placement{s.Placement}, s.Alternatives...))
		return p, text.String(), log.String()
	}
	slow := costsOf(2, 5e-4, 8e-9)
	slow.Models[1].Other = &cost.Line{Fixed: 1e-6, PerByte: 0.5e-9, PerWork: 1e-10, Points: 5, Sizes: 5} // reads twice as fast
	p, text, log := choose(slow, cluster.Hello{Threads: 1}, cluster.Hello{Rank: 1, Threads: 1})
	require.Contains(t, p.Expected(), "; slower than rank 1 alone: prefill by ")
	require.Contains(t, p.Expected(), ", decode by ")
	require.Contains(t, text, "rank 1 alone")
	require.Contains(t, log, "expected to be slower than one of its ranks alone")
	p, _, log = choose(costsOf(2, 0, 0), cluster.Hello{Threads: 1}, cluster.Hello{Rank: 1, Threads: 1})
	require.NotContains(t, p.Expected(), "slower")
	require.Empty(t, log)

	// The whole model needs more than half of it and the replicated part.
	whole, err := Options{Model: f, Sequences: 1, Context: 4096, MaxTokens: 64}.Plan([]cluster.Hello{{Threads: 1}}, 0)
	require.NoError(t, err)
	room := whole.Ranks[0].Resident() - 1<<20
	p, _, log = choose(slow, cluster.Hello{Threads: 1, Memory: room}, cluster.Hello{Rank: 1, Threads: 1, Memory: room})
	require.Contains(t, p.Expected(), "; no rank has room for the whole model")
	require.Empty(t, log)
	p, _, log = choose(slow, cluster.Hello{Threads: 1}, cluster.Hello{Rank: 1, Threads: 1, Memory: room})
	require.Contains(t, p.Expected(), "; slower than rank 0 alone: ", "the faster rank has no room for the whole model")
	require.Contains(t, log, "expected to be slower than one of its ranks alone")
}

// TestCannotMeasure: where a group cannot be measured, or ranks hold running requests, the
// experts are divided, and the log and the line of the start say why.
func TestCannotMeasure(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	var text, log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	members := []cluster.Hello{{Threads: 1}, {Rank: 1, Threads: 1}}
	p := NewPlanner(Options{Model: f, Sequences: 1, MaxTokens: 64, Share: Share{Auto: true}}, &text)
	defer func() { require.NoError(t, p.Close()) }()
	for _, c := range []struct {
		past replica.Past
		why  string
	}{
		{replica.Past{}, "the ranks could not be measured: rank 1: no line fits"},
		{replica.Past{Ran: true, Held: 1 << 10}, "the ranks cannot be measured because they hold running requests"},
		{replica.Past{}, "the ranks could not be measured: rank 1: no line fits"}, // is tried again without requests
	} {
		log.Reset()
		s, err := p.Plan(members, c.past)
		require.NoError(t, err)
		require.Equal(t, c.past.Held == 0, s.Measure)
		if s.Measure {
			all := append([]parallel.Placement{s.Placement}, s.Alternatives...)
			choice := p.Choose(t.Context(), calibrate.Costs{Missing: "rank 1: no line fits"}, all)
			require.Zero(t, choice)
			s = p.Last().Settings
		}
		require.Equal(t, parallel.Range{End: s.Placement.Sizes().Heads}, s.Placement[1].Heads, "attention is replicated")
		require.False(t, s.Placement.DividesRows())
		require.Equal(t, "--share auto divides the experts alone: "+c.why, p.Expected())
		require.Contains(t, log.String(), "--share auto divides the experts alone")
		require.Contains(t, log.String(), c.why)
	}
	require.Equal(t, 3, strings.Count(text.String(), "expected in memory"), "one table of ranks for each epoch")
}
