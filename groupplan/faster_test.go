package groupplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/model/builtin"
	"ringmaster/parallel"
)

// TestForSpeed: --share auto has stages to choose from only where the group loses nothing that
// it was asked for, and where they have room in the context of the others.
func TestForSpeed(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	members := []cluster.Hello{{Rank: 0, Size: 2, Threads: 1}, {Rank: 1, Size: 2, Threads: 1}}
	plan := func(change func(*Options)) Planned {
		o := Options{Model: f, Sequences: 2, MaxTokens: 64, Context: 4096, Share: Share{Auto: true}}
		change(&o)
		p, err := o.Plan(members, 0)
		require.NoError(t, err)
		return p
	}
	p := plan(func(*Options) {})
	require.Len(t, p.others, 2)
	stages := StagesOf(p.others[1].Settings.Placement)
	require.Equal(t, 2, stages.Count)
	require.Nil(t, stages.Ranks)
	given := plan(func(o *Options) { o.Stages, o.Share = Stages{Count: 2}, Share{} })
	require.Equal(t, given.Settings, p.others[1].Settings, "as --stages 2 plans them")
	parsed, err := ParseStages(stages.String())
	require.NoError(t, err)
	require.Equal(t, stages, parsed)
	require.Len(t, plan(func(o *Options) { o.Portable = true }).others, 1)
	drafts := Options{Model: f, Sequences: 2, MaxTokens: 64, DraftFile: f}
	_, err = drafts.forSpeed(members, 4096)
	require.ErrorIs(t, err, errNoStages)
	require.Zero(t, StagesOf(given.Settings.Placement.Within(parallel.Stage{Ranks: parallel.Range{End: 1}})))
}
