package groupplan

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/moe"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
	"ringmaster/replica"
)

func TestPlan(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	plan := func(share string, memory ...int64) ([]parallel.Range, string, error) {
		given, err := ParseShare(share)
		require.NoError(t, err)
		members := make([]cluster.Hello, len(memory))
		for i, m := range memory {
			members[i] = cluster.Hello{Rank: i, Size: len(memory), Memory: m, Data: fmt.Sprintf("10.0.0.%d:7000", i)}
		}
		p, err := Options{Model: f, Sequences: 4, MaxTokens: 64, Share: given}.Plan(members, 0)
		return p.Settings.Placement.Experts(), p.Text, err
	}
	const mib = 1 << 20
	ranges, text, err := plan("experts", 0, 0, 0)
	require.NoError(t, err)
	require.Equal(t, []parallel.Range{{Start: 0, End: 86}, {Start: 86, End: 171}, {Start: 171, End: 256}}, ranges)
	for _, want := range []string{"[86, 171)", "10.0.0.2:7000", "expected in memory"} {
		require.Contains(t, text, want)
	}
	ranges, _, err = plan("experts:2,1,1", 0, 0, 0)
	require.NoError(t, err)
	require.Equal(t, []parallel.Range{{Start: 0, End: 128}, {Start: 128, End: 192}, {Start: 192, End: 256}}, ranges)
	ranges, _, err = plan("experts:memory", 500*mib, 100*mib)
	require.NoError(t, err)
	require.Greater(t, ranges[0].Len(), 4*ranges[1].Len())
	for _, c := range []struct {
		share  string
		memory []int64
		want   string
	}{
		{"experts:memory", []int64{0, 100 * mib}, "the memory of rank 0 is unknown"},
		{"experts:memory", []int64{100 * mib, 6 * mib}, "rank 1 offers 6.0 MiB"},
		{"experts", []int64{100 * mib, mib}, "rank 1 offers 1.0 MiB"},
		{"experts", []int64{12 * mib, 100 * mib}, "MiB too little, so every token would read from disk"},
	} {
		_, text, err := plan(c.share, c.memory...)
		require.ErrorContains(t, err, c.want, text)
	}
}

// TestCopies: ranks get copies of experts where they have memory for them: all, or those
// that fewest have. The plan says how many bytes, what a token reads, and what is gained.
func TestCopies(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const gib = 1 << 30
	plan := func(share string, threads int, memory ...int64) Planned {
		given, err := ParseShare(share)
		require.NoError(t, err)
		members := make([]cluster.Hello, len(memory))
		for i, m := range memory {
			members[i] = cluster.Hello{Rank: i, Size: len(memory), Memory: m, Threads: threads}
		}
		p, err := Options{Model: f, Sequences: 1, Context: 512, MaxTokens: 64, Share: given, Reduce: parallel.Exact}.Plan(members, 0)
		require.NoError(t, err)
		require.NoError(t, p.Settings.Placement.Check(p.Model.Sizes, len(memory)))
		return p
	}
	count := func(p Planned) (out []int) {
		for _, x := range p.Settings.Placement {
			n := 0
			for e := range p.Model.Sizes.Experts {
				if x.Has(0, e) {
					n++
				}
			}
			out = append(out, n)
		}
		return out
	}
	rich := plan("experts", 1, gib, gib)
	require.Equal(t, []int{256, 256}, count(rich))
	require.Contains(t, rich.Text, "experts in copies: the busiest rank takes 1.00 times the mean for a token's experts, 1.30 without copies")
	require.Equal(t, rich.Model.Experts, rich.Ranks[0].ExpertBytes)
	require.Equal(t, rich.Model.Experts/2, rich.Ranks[1].CopyBytes)
	for _, r := range rich.Ranks {
		require.Equal(t, r.DenseBytes-rich.Model.Embedding+3*rich.Model.OneExpert(), r.TokenReads, "three of six experts")
	}

	// One has memory for half of what it lacks, the other for none.
	part := func(r int) int64 { return rich.Ranks[r].Resident() - rich.Ranks[r].CopyBytes }
	some := plan("experts", 1, part(0)+rich.Ranks[0].CopyBytes/2, part(1))
	require.Equal(t, []int{192, 128}, count(some))
	require.Contains(t, some.Text, "without copies")
	none := plan("experts", 1, part(0), 0)
	require.Equal(t, []int{128, 128}, count(none))
	require.Contains(t, none.Text, "experts in copies: none, because rank 0 has no memory beyond its part")
	require.Contains(t, plan("experts", 1, 0, gib).Text, "1.30 without copies", "one rank helps")

	// Four ranks with memory for as many copies as experts: each expert is on two.
	quarter := plan("experts", 1, 0, 0, 0, 0).Ranks[0].Resident() + rich.Model.OneExpert()*64 + 16<<10
	four := plan("experts", 1, quarter, quarter, quarter, quarter)
	for e := range 256 {
		holders := 0
		for _, x := range four.Settings.Placement {
			if x.Has(0, e) {
				holders++
			}
		}
		require.GreaterOrEqual(t, holders, 2, "expert %d", e)
	}

	// With sum more than a quarter would make prefill slower than it makes a token faster.
	p, err := Options{Model: f, Sequences: 1, Context: 512, MaxTokens: 64}.Plan([]cluster.Hello{{Memory: gib, Threads: 1}, {Rank: 1, Memory: gib, Threads: 1}}, 0)
	require.NoError(t, err)
	require.Equal(t, []int{192, 192}, count(p))

	// What a survivor lacks is read from disk when the other is lost.
	parts := some.Settings.Placement
	require.Equal(t, 64*some.Model.OneExpert(), some.Model.Lost(parts[:1]))
	require.Equal(t, 128*some.Model.OneExpert(), some.Model.Lost(parts[1:]))
	require.Zero(t, some.Model.Lost(parts))
	require.Zero(t, rich.Model.Lost(rich.Settings.Placement[1:]))

	// Numbers say who is faster; a GPU has copies for divided steps.
	require.Equal(t, []int{assign.MaxSpeed, assign.MaxSpeed / 2}, speedsOf(plan("all:2,1", 1, gib, gib)))
	gpu := plan("all", 0, gib, gib)
	require.True(t, gpu.Settings.Placement.Waits())
	require.Contains(t, gpu.Text, "copies serve only steps that are divided by rows")
	undivided := gpu.choose(replica.Choice{})
	require.Equal(t, []int{128, 128}, count(undivided), "copies that never serve")
	require.Contains(t, undivided.Text, "none, because a GPU would wait")
	require.Equal(t, 1, strings.Count(undivided.Text, "experts in copies"))
	require.Zero(t, undivided.Ranks[1].CopyBytes)
	require.Greater(t, undivided.Ranks[1].TokenReads, gpu.Ranks[1].TokenReads)
	require.Equal(t, gpu.Settings.Placement, gpu.choose(replica.Choice{Rows: unmeasuredRows}).Settings.Placement)
	never := plan("experts", 0, gib, gib)
	require.Equal(t, []int{128, 128}, count(never))
	require.Contains(t, never.Text, "none, because a GPU would wait")
	p, err = Options{Model: f, Sequences: 1, Context: 512, MaxTokens: 64}.Plan([]cluster.Hello{{Memory: gib}, {Rank: 1, Memory: gib, Threads: 1}}, 0)
	require.NoError(t, err)
	require.Equal(t, []int{128, 128}, count(p))
	require.Contains(t, p.Text, "none, because a GPU would wait")
}

// TestCopiesLeaveWhatRuns: after a loss copies leave room for the sequences that ranks hold,
// so that these are not refused.
func TestCopiesLeaveWhatRuns(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	plan := func(memory, held int64) (Planned, error) {
		members := []cluster.Hello{{Threads: 1, Memory: memory}, {Rank: 1, Threads: 1, Memory: memory}}
		p := NewPlanner(Options{Model: f, Sequences: 16, Context: 4096, MaxTokens: 64, Reduce: parallel.Exact}, io.Discard)
		defer func() { require.NoError(t, p.Close()) }()
		fits := p.Fits(members, replica.Past{Ran: true, Held: held})
		_, err := p.Plan(members, replica.Past{Ran: true, Held: held})
		require.Equal(t, err, fits)
		return p.Last(), err
	}
	rich, err := plan(1<<30, 0)
	require.NoError(t, err)
	one, sequences := rich.Model.PerSequence(), rich.Model.AllSequences()
	least := max(rich.Ranks[0].Resident()-rich.Ranks[0].CopyBytes, rich.Ranks[1].Resident()-rich.Ranks[1].CopyBytes)
	memory := least + sequences - one + rich.Ranks[0].CopyBytes/4
	free, err := plan(memory, one)
	require.NoError(t, err)
	require.Less(t, free.Settings.SequenceBudget, sequences, "copies have half of what is free")
	for _, held := range []int64{0, one, free.Settings.SequenceBudget, free.Settings.SequenceBudget + 1, sequences} {
		p, err := plan(memory, held)
		require.NoError(t, err)
		require.GreaterOrEqual(t, p.Settings.SequenceBudget, held)
		require.True(t, p.Settings.Placement.Copies())
	}

	// Without memory for what copies add to the buffers there are none.
	tight := least - moe.CopiesBytes(rich.Model.Routed) + sequences - one
	for _, held := range []int64{one, sequences} {
		p, err := plan(tight, held)
		require.NoError(t, err)
		require.Equal(t, held < sequences, p.Settings.Placement.Copies(), p.Text)
	}
	_, err = plan(tight-1<<20, sequences)
	require.ErrorContains(t, err, "the KV caches of the running requests take")
}

func speedsOf(p Planned) (out []int) {
	for _, x := range p.Settings.Placement {
		out = append(out, x.Speed)
	}
	return out
}

// TestBudget: the KV caches of a group have the memory of the rank that has
// least, after what it owns and its buffers; a rank with too little --memory for one
// sequence is named.
func TestBudget(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const mib = 1 << 20
	plan := func(members ...cluster.Hello) (replica.Settings, error) {
		for i := range members {
			members[i].Rank, members[i].Size, members[i].Threads = i, len(members), 2
		}
		p, err := Options{Model: f, Sequences: 16, Context: 4096, MaxTokens: 64}.Plan(members, 0)
		return p.Settings, err
	}
	p, err := arch.Plan(f, decoder.OpenOptions{Context: 4096, MaxTokens: 64}, 16)
	require.NoError(t, err)
	one := p.PerSequence()

	s, err := plan(cluster.Hello{}, cluster.Hello{})
	require.NoError(t, err)
	require.Equal(t, 16*one, s.SequenceBudget, "nothing limits it but the number of sequences")
	s, err = plan(cluster.Hello{OwnMemory: 999 * mib}, cluster.Hello{OwnMemory: 40 * mib})
	require.NoError(t, err)
	require.Greater(t, s.SequenceBudget, one)
	require.Less(t, s.SequenceBudget, int64(40*mib))
	tight, err := plan(cluster.Hello{OwnMemory: 999 * mib}, cluster.Hello{OwnMemory: 39 * mib})
	require.NoError(t, err)
	require.Equal(t, s.SequenceBudget-mib, tight.SequenceBudget)
	offered, err := plan(cluster.Hello{}, cluster.Hello{Memory: 40 * mib})
	require.NoError(t, err)
	less, err := plan(cluster.Hello{}, cluster.Hello{Memory: 39 * mib})
	require.NoError(t, err)
	require.InDelta(t, offered.SequenceBudget, less.SequenceBudget, 2*mib, "copies of experts get about half")
	require.Greater(t, less.SequenceBudget, one)
	_, err = plan(cluster.Hello{}, cluster.Hello{OwnMemory: 5 * mib})
	require.ErrorContains(t, err, "on rank 1 for buffers and one sequence")
	require.ErrorContains(t, err, "its --memory allows 5.0 MiB")
}

// TestAutoPlansEachShareByItself: with Share.Auto a share has room if it has by itself, and
// the plan of one does not depend on that of the other. In a range of memories the context
// of one share is shorter than that of the other.
func TestAutoPlansEachShareByItself(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	o := Options{Model: f, Sequences: 16, MaxTokens: 512, Heap: LeastHeap}
	different := 0
	for memory := int64(80 << 20); memory < 104<<20; memory += 1 << 20 {
		members := []cluster.Hello{{Rank: 0, Threads: 1, OwnMemory: memory}, {Rank: 1, Threads: 1, OwnMemory: memory, Process: "a"}}
		plan := func(share Share) (replica.Settings, error) {
			one := o
			one.Share = share
			p, err := one.Plan(members, 0)
			return p.Settings, err
		}
		experts, errExperts := plan(Share{Of: parallel.ShareExperts})
		all, errAll := plan(Share{Of: parallel.ShareAll})
		auto, errAuto := plan(Share{Auto: true})
		text := units.Bytes(memory)
		if errExperts != nil && errAll != nil {
			require.Error(t, errAuto, text)
			continue
		}
		require.NoError(t, errAuto, text)
		if errExperts != nil || errAll != nil {
			require.Empty(t, auto.Alternatives, text)
			continue
		}
		require.Len(t, auto.Alternatives, 2, "both have room with %s, experts for %d and all for %d tokens", text, experts.Context, all.Context)
		require.Equal(t, min(experts.Context, all.Context), auto.Context, text)
		if experts.Context != all.Context {
			different++
		}

		// A planner is asked twice, as for two epochs: the context of the first is that of
		// the second, and what it told before does not change what it tells now.
		p := NewPlanner(Options{Model: f, Sequences: 16, MaxTokens: 512, Heap: LeastHeap, Share: Share{Auto: true}}, io.Discard)
		first, err := p.Plan(members, replica.Past{})
		require.NoError(t, err, text)
		require.NoError(t, p.Fits(members, replica.Past{}), text)
		second, err := p.Plan(members, replica.Past{})
		require.NoError(t, err, text)
		require.Equal(t, first, second, text)
		require.True(t, first.Measure, text)
		require.NoError(t, p.Close())
	}
	require.Positive(t, different, "the range has no memory with two contexts")
}

// TestPopularCopies: with memory for some copies ranks get those that were chosen most in
// each layer, once enough tokens have been counted; with sum no count matters.
func TestPopularCopies(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	reduce := parallel.Exact
	plan := func(times uint64, memory int64) Planned {
		chosen := func() [][]uint64 {
			out := make([][]uint64, 6)
			for l := range out {
				out[l] = make([]uint64, 256)
				for e := range out[l] {
					out[l][e] = times * 10
				}
				for n := range 20 { // other favourites in each layer, of each owner
					out[l][(10*l+n)%128], out[l][128+(10*l+n)%128] = times*1000, times*1000
				}
			}
			return out
		}
		members := []cluster.Hello{{Threads: 1, Memory: memory}, {Rank: 1, Threads: 1, Memory: memory}}
		p, err := Options{Model: f, Sequences: 1, Context: 512, MaxTokens: 64, Reduce: reduce, Chosen: chosen}.Plan(members, 0)
		require.NoError(t, err)
		require.NoError(t, p.Settings.Placement.Check(p.Model.Sizes, 2))
		return p
	}
	all := plan(1, 1<<30)
	require.Len(t, all.Settings.Placement[0].Copies, 1, "all copied")
	part := all.Ranks[0].Resident() - all.Ranks[0].CopyBytes + 20*all.Model.OneExpert()
	some := plan(1, part)
	for r, x := range some.Settings.Placement {
		for l := range 6 {
			require.Equal(t, 16, x.Copies[l].Len())
			for e := range 256 {
				if x.Copies[l].Has(e) {
					require.Less(t, (e%128-10*l+128)%128, 20, "rank %d, layer %d, expert %d", r, l, e)
				}
			}
		}
	}
	require.Contains(t, some.Text, "copies are of the experts that were chosen most")
	require.Equal(t, 16*some.Model.OneExpert(), some.Ranks[0].CopyBytes)
	few := plan(0, part)
	require.Len(t, few.Settings.Placement[0].Copies, 1, "nothing was counted")

	// With sum copies decide last bits, so counts, which differ between epochs, do not matter.
	reduce = parallel.Sum
	before, after := plan(0, part), plan(1, part)
	require.True(t, before.Settings.Placement.Copies())
	require.Equal(t, before.Settings.Placement, after.Settings.Placement)
}
