package groupplan

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/host"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/replica"
)

// TestLongSteps: on GPUs steps are long where memory has room for them beside the context and
// three quarters of the conversations that it holds with short ones; on a CPU, and where a length was
// given, they are not. A group keeps its length.
func TestLongSteps(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const sequences = 8
	plan := func(steps int) decoder.Plan {
		p, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: steps}, sequences)
		require.NoError(t, err)
		return p
	}
	short, long := plan(decoder.DefaultMaxTokens), plan(LongSteps)
	require.Greater(t, long.PerSequence(), short.PerSequence())
	need := func(p decoder.Plan, n float64) int64 { // of so many conversations
		return p.Weights() + p.Fixed() + own(p, 0, 0).bytes() + int64(n*float64(p.PerSequence()))
	}
	// With n conversations by short steps, long ones have room for so many.
	longOf := func(memory int64) float64 {
		return float64(min(memory-need(long, 0), long.AllSequences())) / float64(long.PerSequence())
	}
	shortOf := func(memory int64) float64 {
		return float64(min(memory-need(short, 0), short.AllSequences())) / float64(short.PerSequence())
	}
	seen := map[int]int{}
	for n := 1.0; n < 16*sequences; n *= 1.1 {
		memory := need(short, n)
		want := decoder.DefaultMaxTokens
		if longOf(memory) >= 1 && longOf(memory) >= 0.75*shortOf(memory) {
			want = LongSteps
		}
		seen[want]++
		o := Options{Model: f, Sequences: sequences, Lone: true}
		room := Room{Memory: host.Memory{Total: memory, Available: memory}, Known: true}
		p, text, err := o.Alone(room)
		require.NoError(t, err)
		require.Equal(t, want, p.MaxTokens, "%v conversations", n)
		if want == LongSteps {
			require.Contains(t, text, "steps of up to 2048 tokens")
		} else {
			require.NotContains(t, text, "steps of up to")
		}
		member := []cluster.Hello{{Size: 1, Memory: memory}}
		group, err := o.PlanOrStages(member, 0)
		require.NoError(t, err)
		require.Equal(t, want, group.Settings.MaxTokens, "%v conversations", n)

		room.Threads, member[0].Threads = 1, 1
		room.Memory.Total, room.Memory.Available, member[0].Memory = 1<<40, 1<<40, 1<<40
		p, _, err = o.Alone(room)
		require.NoError(t, err)
		require.Equal(t, decoder.DefaultMaxTokens, p.MaxTokens)
		group, err = o.PlanOrStages(member, 0)
		require.NoError(t, err)
		require.Equal(t, decoder.DefaultMaxTokens, group.Settings.MaxTokens)
	}
	require.Greater(t, seen[LongSteps], 2)
	require.Greater(t, seen[decoder.DefaultMaxTokens], 2)

	o := Options{Model: f, Sequences: sequences, MaxTokens: 77, Share: Share{Auto: true}}
	p, _, err := o.Alone(Room{})
	require.NoError(t, err)
	require.Equal(t, 77, p.MaxTokens)
	o.MaxTokens = 0
	planner := NewPlanner(o, io.Discard)
	two := []cluster.Hello{{Size: 2, Memory: 1 << 40}, {Rank: 1, Size: 2, Memory: 1 << 40}}
	for _, members := range [][]cluster.Hello{two, {two[0]}, {two[0], {Rank: 1, Size: 2, Memory: 1 << 40, Threads: 1}}} {
		s, err := planner.Plan(members, replica.Past{})
		require.NoError(t, err)
		require.Equal(t, LongSteps, s.MaxTokens, "as the first plan")
	}
}
