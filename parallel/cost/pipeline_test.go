package cost

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// pipelineOf is stages of one rank each that take so many seconds for each piece
// [stages][pieces], with messages of a second.
func pipelineOf(lasts []bool, seconds ...[]float64) Pipeline {
	p := Pipeline{Next: slices.Repeat([]Line{{PerByte: 1}}, len(seconds)), Control: Line{Fixed: 0.25}}
	for _, last := range lasts {
		p.Pieces = append(p.Pieces, Piece{Bytes: 1, Last: last})
	}
	for _, of := range seconds {
		s := Stage{Models: []Model{unit}}
		for _, took := range of {
			s.Pieces = append(s.Pieces, []Trace{{mul(took)}})
		}
		p.Stages = append(p.Stages, s)
	}
	return p
}

// TestPipeline: pieces pass through the slowest stage one behind the other, a stage of one rank
// sends and receives while it computes, and what is computed by hand is expected.
func TestPipeline(t *testing.T) {
	one, three := []bool{true}, []bool{false, false, true}
	several := func(p Pipeline) Pipeline { // the second stage has two ranks
		s := &p.Stages[1]
		s.Models = []Model{unit, unit}
		for k := range s.Pieces {
			s.Pieces[k] = append(s.Pieces[k], Trace{mul(1)})
		}
		return p
	}
	wanted := func(p Pipeline) Pipeline {
		p.Final, p.Stages[0].Head = 2, []Trace{{mul(3)}}
		return p
	}
	for name, c := range map[string]struct {
		of   Pipeline
		want float64
	}{
		// Two stages and a message; then the last one tells rank 0.
		"one piece":                   {pipelineOf(one, []float64{4}, []float64{5}), 4 + 1 + 5 + 0.25},
		"a token with its head":       {wanted(pipelineOf(one, []float64{4}, []float64{5})), 4 + 1 + 5 + 2 + 3},
		"three stages":                {wanted(pipelineOf(one, []float64{4}, []float64{5}, []float64{6})), 4 + 1 + 5 + 1 + 6 + 2 + 3},
		"even stages":                 {pipelineOf(three, []float64{4, 4, 4}, []float64{4, 4, 4}), 3*4 + 1 + 4 + 0.25},
		"the slower stage decides":    {pipelineOf(three, []float64{4, 4, 4}, []float64{9, 9, 9}), 4 + 1 + 3*9 + 0.25},
		"the first stage is slower":   {pipelineOf(three, []float64{9, 9, 9}, []float64{4, 4, 4}), 3*9 + 1 + 4 + 0.25},
		"a step ends with a message":  {pipelineOf([]bool{true, true}, []float64{4, 4}, []float64{2, 2}), 4 + 1 + 4 + 1 + 2 + 0.25},
		"two ranks wait for messages": {several(pipelineOf(three, []float64{4, 4, 4}, []float64{4, 4, 4})), 4 + 3*(1+4) + 0.25},
	} {
		e, err := c.of.Expect()
		require.NoError(t, err, name)
		require.InDelta(t, c.want, e.Seconds, 1e-9, name)
		require.InDelta(t, c.want, e.Compute[0]+e.Waiting[0], 1e-9, name)
		require.Empty(t, e.Unknown, name)
	}
	slow := pipelineOf(three, []float64{4, 4, 4}, []float64{4, 4, 4})
	slow.Next[0] = Line{PerByte: 10}
	e, err := slow.Expect()
	require.NoError(t, err)
	// Pieces arrive at 14, 24 and 34: a stage has a buffer for one piece that leaves.
	require.InDelta(t, 4+3*10+4+0.25, e.Seconds, 1e-9, "the link decides")
	require.InDelta(t, 1, e.Imbalance, 1e-9)

	slow.Stages[1].Pieces[1][0] = Trace{{Op: &Op{Kind: "new"}}}
	e, err = slow.Expect()
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, e.Unknown)
	slow.Pieces = slow.Pieces[1:]
	_, err = slow.Expect()
	require.ErrorIs(t, err, errPipeline)
}
