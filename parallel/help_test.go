package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

func TestWithHelper(t *testing.T) {
	p, err := WithHelper(staged, 4, Help{Rows: 64, Missing: 100})
	require.NoError(t, err)
	require.True(t, p.Helped())
	require.False(t, p.Staged(), "rank 0 has all layers")
	require.Equal(t, []Stage{{Range{0, 4}, Range{0, 1}}, {Range{4, 10}, Range{1, 2}}}, p.Halves())
	require.NoError(t, p.HelpedFrom(6, Help{}).Check(staged, 2))
	require.Equal(t, 4, p[1].Layers.Start)
	require.Equal(t, staged.Layers, p.Sizes().Layers)
	for title, x := range map[string]struct {
		change func(Placement)
		why    string
	}{
		"no layers before":    {func(p Placement) { p[1].Layers.Start = 0 }, "the helper has the layers [0, 10); expected the last ones of 10, without layer 0"},
		"not the last layers": {func(p Placement) { p[1].Layers.End = 9 }, "expected the last ones of 10"},
		"none":                {func(p Placement) { p[1].Layers.Start = 10 }, "expected the last ones of 10"},
		"negative":            {func(p Placement) { p[1].Help.Rows = -1 }, "expected none below 0"},
		"an output head":      {func(p Placement) { p[1].Vocabulary.Start = 0 }, "the helper has the rows [0, 100) of the output head"},
		"some experts":        {func(p Placement) { p[1].Experts.Start = 1 }, "the helper: rank 0 gets experts 1 to 8"},
		"rank 0 lacks some":   {func(p Placement) { p[0].Experts.End = 7 }, "experts"},
		"rank 0 helps":        {func(p Placement) { p[0].Help = &Help{} }, "rank 0 is a helper; only rank 1 of two may be one"},
	} {
		p, err := WithHelper(staged, 4, Help{})
		require.NoError(t, err)
		x.change(p)
		err = p.Check(staged, 2)
		require.ErrorIs(t, err, distributed.ErrArgument, title)
		require.ErrorContains(t, err, x.why, title)
	}
	require.ErrorContains(t, p.Check(staged, 3), "a helper in a group of 3 ranks; expected 2")
}
