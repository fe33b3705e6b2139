package groupplan

import (
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/model/synthetic"
)

// leastBytes returns the fewest bytes with which fits.
func leastBytes(t *testing.T, fits func(bytes int64) bool) int64 {
	n := sort.Search(1<<32, func(n int) bool { return fits(int64(n)) })
	require.True(t, fits(int64(n)))
	return int64(n)
}

// TestABlockIsSpared: a block that may be spared is left out where the model, or its whole
// context, has room only without it, and in stages; the plan says so. One that may not makes
// the same memory too small.
func TestABlockIsSpared(t *testing.T) {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	c.Block, c.Context = synthetic.BlockParts, 4*LeastContext
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()

	plain := Options{Model: f, Sequences: 2, MaxTokens: 64}
	needed, spared := plain, plain
	needed.DraftFile = f
	spared.DraftFile, spared.DraftSpared = f, true
	const left = "no drafts from the model's block for multi-token prediction"
	for _, context := range []int{0, c.Context} { // the context gives way, and does not
		whole := func(o Options) int64 {
			o.Context = context
			return leastBytes(t, func(limit int64) bool {
				plan, _, err := o.Alone(Room{Limit: max(limit, 1)})
				return err == nil && plan.Context == c.Context
			})
		}
		without, with := whole(plain), whole(needed)
		require.Greater(t, with, without)
		spared.Context = context
		for limit, block := range map[int64]bool{with: true, with - 1: false, without: false} {
			plan, text, err := spared.Alone(Room{Limit: limit})
			require.NoError(t, err)
			require.Equal(t, c.Context, plan.Context)
			require.Equal(t, block, plan.DraftWeights > 0)
			require.Equal(t, !block, strings.Contains(text, left), text)
		}
		_, _, err = spared.Alone(Room{Limit: 1})
		require.Error(t, err)
	}

	two := func(memory int64) []cluster.Hello {
		return []cluster.Hello{{Size: 2, Memory: memory}, {Rank: 1, Size: 2, Memory: memory}}
	}
	whole := func(o Options) int64 {
		return leastBytes(t, func(memory int64) bool {
			p, err := o.Plan(two(max(memory, 1)), 0)
			return err == nil && p.Settings.Context == c.Context
		})
	}
	spared.Context = 0
	without, with := whole(plain), whole(needed)
	require.Greater(t, with, without)
	for memory, block := range map[int64]bool{with: true, without: false} {
		p, err := spared.PlanOrStages(two(memory), 0)
		require.NoError(t, err)
		require.Equal(t, c.Context, p.Settings.Context)
		require.Equal(t, block, p.Settings.Block)
		require.Equal(t, !block, strings.Contains(p.Text, left), p.Text)
	}

	staged := spared
	staged.Stages = Stages{Count: 2}
	p, err := staged.PlanOrStages(two(0), 0)
	require.NoError(t, err)
	require.True(t, p.Settings.Placement.Staged())
	require.False(t, p.Settings.Block)
	require.Contains(t, p.Text, left)
	spared.Context, spared.Share = c.Context, Share{Auto: true}
	p, err = spared.PlanOrStages(two(0), 0)
	require.NoError(t, err)
	require.Len(t, p.others, 2, "stages are compared too")
}
