package groupplan

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/model/arch"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

func TestParseStages(t *testing.T) {
	for _, text := range []string{"", "2", "8", "0-21,22-42", "0-0,1-1,2-9", "0-21:2,22-42:1"} {
		s, err := ParseStages(text)
		require.NoError(t, err, text)
		require.Equal(t, text, s.String())
		require.Equal(t, text != "", s.Given())
	}
	for text, want := range map[string]string{
		"1":              "1 stages; expected 2 to 8",
		"9":              "9 stages",
		"-2":             "-2 stages",
		"0-21":           "1 stages",
		"1-21,22-42":     "begins with layer 1; expected layer 0",
		"0-21,23-42":     "begins with layer 23; expected layer 22",
		"0-21,22-20":     `"22-20" is not a range`,
		"0-21:2,22-42":   "either all stages or none",
		"0-21:0,22-42:1": `"0" is not a number of ranks`,
		"a-b,c":          "is not a range",
	} {
		_, err := ParseStages(text)
		require.ErrorContains(t, err, want, text)
	}
	two, err := ParseStages("0-21:2,22-42:1")
	require.NoError(t, err)
	require.NoError(t, two.Check(3, Share{}))
	require.ErrorContains(t, two.Check(2, Share{}), "stages of 3 ranks together; there are 2")
	require.ErrorContains(t, Stages{Count: 3}.Check(2, Share{}), "3 stages need as many ranks")
	require.Equal(t, []int{2, 1, 1}, Stages{Count: 3}.of(4, 4).Ranks)
	require.Equal(t, Stages{Count: 2, Ranks: []int{1, 1}}, two.of(2, 3), "after a loss")
}

// TestStages: a rank needs the weights and KV caches of its layers alone, together they are
// those of the model, and the budget of rank 0 leaves every rank room for its part.
func TestStages(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	const mib = 1 << 20
	members := func(memory ...int64) (all []cluster.Hello) {
		for i, m := range memory {
			all = append(all, cluster.Hello{Rank: i, Size: len(memory), Memory: m, Threads: 1, Data: fmt.Sprintf("10.0.0.%d:7000", i)})
		}
		return all
	}
	stages := func(text string) Stages {
		s, err := ParseStages(text)
		require.NoError(t, err)
		return s
	}
	o := Options{Model: f, Sequences: 4, MaxTokens: 64, Stages: stages("2")}
	whole, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 64}, 4)
	require.NoError(t, err)

	p, err := o.Plan(members(300*mib, 300*mib, 300*mib), 0)
	require.NoError(t, err)
	require.NoError(t, p.Settings.Placement.Check(p.Model.Sizes, 3))
	require.Len(t, p.Settings.Placement.Stages(), 2)
	require.Contains(t, p.Text, "stage 1: layers ")
	one, err := o.Plan(members(300*mib, 300*mib), 0)
	require.NoError(t, err)
	require.Equal(t, whole.Experts, one.Ranks[0].ExpertBytes+one.Ranks[1].ExpertBytes)
	require.Equal(t, whole.Dense, one.Ranks[0].DenseBytes+one.Ranks[1].DenseBytes)
	require.Equal(t, whole.PerSequence(), one.Ranks[0].Sequence+one.Ranks[1].Sequence)

	// The less memory the last rank has, the smaller the budget, by what it needs itself.
	least := one.Ranks[1].Resident()
	for _, more := range []int64{0, mib, 5 * mib} {
		q, err := o.Plan(members(300*mib, least+more), 0)
		require.NoError(t, err)
		sequences := float64(q.Settings.SequenceBudget) / float64(q.Ranks[0].Sequence)
		room := float64(least + more - (q.Ranks[1].Resident() - q.Ranks[1].Sequence))
		require.LessOrEqual(t, sequences*float64(q.Ranks[1].Sequence), room)
		require.GreaterOrEqual(t, sequences, 0.5, "but not much smaller than need be")
	}
	o.Context = one.Settings.Context
	_, err = o.Plan(members(300*mib, least/2), 0)
	require.ErrorContains(t, err, "rank 1 needs")

	for text, want := range map[string]string{"0-1,2-99": "ends with layer 99; the model has the layers 0 to"} {
		o.Stages = stages(text)
		_, err := o.Plan(members(0, 0), 0)
		require.ErrorContains(t, err, want)
	}
	o.Stages, o.DraftFile = stages("2"), f
	_, err = o.Plan(members(0, 0), 0)
	require.ErrorContains(t, err, "--drafts text")

	// Without --stages they are taken where nothing else has room.
	o = Options{Model: f, Sequences: 4, MaxTokens: 64, Share: Share{Auto: true}}
	two := func(memory int64) []cluster.Hello { return members(memory, memory) }
	q, err := o.PlanOrStages(two(max(one.Ranks[0].Resident(), one.Ranks[1].Resident())), 0)
	require.NoError(t, err)
	require.Len(t, q.Settings.Placement.Stages(), 2, q.Text)
	require.Contains(t, q.Text, "--share auto chose stages")
	q, err = o.PlanOrStages(two(300*mib), 0)
	require.NoError(t, err)
	require.Empty(t, q.Settings.Placement.Stages())
	_, err = o.PlanOrStages(two(20*mib), 0)
	require.ErrorContains(t, err, "rank 0")

	// Shares decide how many layers a stage gets.
	o = Options{Model: f, Sequences: 4, MaxTokens: 64, Stages: stages("2"), Share: Share{Shares: Shares{Numbers: []float64{1, 4}}}}
	q, err = o.Plan(members(0, 0), 0)
	require.NoError(t, err)
	uneven := q.Settings.Placement.Stages()
	require.Less(t, 2*uneven[0].Layers.Len(), uneven[1].Layers.Len())
}

// TestStagesOfReleasedShapes: of every architecture two stages are possible, about even, and
// what a stage may not begin with is refused by name.
func TestStagesOfReleasedShapes(t *testing.T) {
	for name, joined := range map[string]bool{"flash": false, "v41": true, "v3": false, "glm5": false, "glm5-tiny": true, "v32": false, "k2": false} {
		t.Run(name, func(t *testing.T) {
			c, err := synthetic.Preset(name)
			require.NoError(t, err)
			c.Holes = true
			path := filepath.Join(t.TempDir(), "holes.gguf")
			_, err = c.WriteFile(path)
			require.NoError(t, err)
			f, err := gguf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			plan, err := arch.Plan(f, decoder.OpenOptions{}, 1)
			require.NoError(t, err)
			two := []cluster.Hello{{Rank: 0, Size: 2}, {Rank: 1, Size: 2}}
			o := Options{Model: f, Sequences: 1, MaxTokens: 512, Stages: Stages{Count: 2}}
			_, err = o.forSpeed(two, 4096)
			require.Equal(t, name == "v41", errors.Is(err, errNoStages), "the staircase of V4.1 saves more: %v", err)
			p, err := o.Plan(two, 0)
			require.NoError(t, err)
			s := p.Settings.Placement.Stages()
			require.Len(t, s, 2)
			if a, b := s[0].Layers.Len(), s[1].Layers.Len(); plan.Layers > 8 {
				require.LessOrEqual(t, max(a, b), 2*min(a, b), "%v", s)
			}
			refused := false
			for layer := 1; layer < plan.Layers; layer++ {
				if plan.Splits[layer] {
					continue
				}
				refused = true
				o.Stages = Stages{Count: 2, Layers: []parallel.Range{{Start: 0, End: layer}, {Start: layer, End: plan.Layers}}}
				_, err := o.Plan(two, 0)
				require.ErrorContains(t, err, fmt.Sprintf("begins with layer %d, which reads", layer))
			}
			require.Equal(t, joined, refused, "layers that read what an earlier one has made")
		})
	}
}
