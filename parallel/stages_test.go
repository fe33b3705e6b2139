package parallel

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

var staged = Sizes{Experts: 8, Heads: 4, Shared: 2, Vocabulary: 100, Layers: 10}

// inStages is a placement of staged: two ranks for the layers [0, 4), one for the rest.
func inStages(t *testing.T) Placement {
	two, err := Everything(staged, []float64{1, 3})
	require.NoError(t, err)
	one, err := ByExperts(staged, []float64{1})
	require.NoError(t, err)
	return InStages([]Range{{0, 4}, {4, 10}}, []Placement{two, one})
}

func TestStages(t *testing.T) {
	p := inStages(t)
	require.NoError(t, p.Check(staged, 3))
	stages := p.Stages()
	require.Equal(t, []Stage{{Range{0, 4}, Range{0, 2}}, {Range{4, 10}, Range{2, 3}}}, stages)
	require.Equal(t, []int{0, 0, 1}, []int{StageOf(stages, 0), StageOf(stages, 1), StageOf(stages, 2)})
	require.Equal(t, staged, p.Sizes())
	require.Equal(t, []Range{{0, 25}, {25, 100}, {100, 100}}, p.Vocabulary(), "the first stage has the output head")
	inside := p.Within(stages[0])
	require.Nil(t, inside.Stages())
	require.NoError(t, inside.Check(staged, 2))
	require.True(t, p[0].Has(3, 0))
	require.False(t, p[0].Has(4, 0), "a layer of the other stage")

	b, err := json.Marshal(p)
	require.NoError(t, err)
	var back Placement
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, p, back)
	plain, err := ByExperts(staged, []float64{1, 1})
	require.NoError(t, err)
	require.Nil(t, plain.Stages())
	b, err = json.Marshal(plain)
	require.NoError(t, err)
	require.NotContains(t, string(b), "layers")
}

func TestCheckOfStages(t *testing.T) {
	for name, x := range map[string]struct {
		change func(p Placement)
		text   string
	}{
		"a gap":                      {func(p Placement) { p[2].Layers.Start = 5 }, "stage 1 has the layers [5, 10); expected some from layer 4 on"},
		"an overlap":                 {func(p Placement) { p[2].Layers.Start = 3 }, "expected some from layer 4 on"},
		"too few layers":             {func(p Placement) { p[2].Layers.End = 9 }, "the stages have 9 layers and the model 10"},
		"no layer":                   {func(p Placement) { p[2].Layers = Range{4, 4} }, "stage 1 has the layers [4, 4)"},
		"all layers on one rank":     {func(p Placement) { p[2].Layers = Range{} }, "expected some from layer 4 on"},
		"experts without a rank":     {func(p Placement) { p[1].Experts.End = 7 }, "stage 0: the ranges of experts end at 7 of 8"},
		"an output head on the last": {func(p Placement) { p[2].Vocabulary.Start = 0 }, "stage 1 has the rows [0, 100) of the output head"},
	} {
		t.Run(name, func(t *testing.T) {
			p := inStages(t)
			x.change(p)
			err := p.Check(staged, 3)
			require.ErrorIs(t, err, distributed.ErrArgument)
			require.ErrorContains(t, err, x.text)
		})
	}
	require.ErrorContains(t, inStages(t).Check(staged, 4), "stages of 3 ranks in a group of 4")
	plain, err := ByExperts(staged, []float64{1, 1})
	require.NoError(t, err)
	plain[1].Layers = Range{0, 10}
	require.ErrorContains(t, plain.Check(staged, 2), "rank 1 has the layers [0, 10) and rank 0 all")
}
