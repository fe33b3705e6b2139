package groupplan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/host"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
)

// TestShorterContextMakesRoomForWeights: a host that holds the weights but not beside the longest
// context gets a shorter one; a host that runs alone and `plan` say the same. In a group the
// context stays, because another rank could take weights.
func TestShorterContextMakesRoomForWeights(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	o := Options{Model: f, Sequences: 4, MaxTokens: 64}
	needs := func(context int) int64 { // on a host alone
		p, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 64, Context: context}, 4)
		require.NoError(t, err)
		return p.Weights() + p.Fixed() + p.PerSequence() + own(p, 1, 0).bytes()
	}
	whole, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 64}, 4)
	require.NoError(t, err)
	longest := whole.ContextLimit
	require.Greater(t, longest, 2*LeastContext)
	require.Greater(t, needs(longest), needs(longest/2))
	for _, c := range []struct {
		memory int64
		want   int
	}{{needs(longest), longest}, {needs(longest) - 1, longest / 2}, {needs(longest / 2), longest / 2}} {
		plan, text, err := o.Alone(Room{Memory: host.Memory{Total: c.memory, Available: c.memory}, Known: true, Threads: 1})
		require.NoError(t, err)
		require.Equal(t, c.want, plan.Context)
		require.Equal(t, c.want < longest, strings.Contains(text, "context limited to"), text)

		lone := o
		lone.Lone = true
		member := []cluster.Hello{{Size: 1, Memory: c.memory, Threads: 1}}
		planned, err := lone.Plan(member, 0)
		require.NoError(t, err)
		require.Equal(t, c.want, planned.Settings.Context)
		if c.want < longest {
			_, err = o.Plan(member, 0)
			require.ErrorContains(t, err, "too little")
		}
	}
	_, _, err = o.Alone(Room{Memory: host.Memory{Total: whole.Weights(), Available: whole.Weights()}, Known: true, Threads: 1})
	require.ErrorContains(t, err, "so every token would read from disk")
}
