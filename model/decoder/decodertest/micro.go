package decodertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/internal/testenv"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// MicroOnAnyRanks checks that running steps as two micro-batches changes no bit, wherever
// the cuts are: of several sequences, of prompts in chunks, with rows divided or not.
// With exact the logits are those of one rank, with sum those of the same ranks without
// micro-batches. Backends that run nothing before Flush compute the same.
func (a Architecture) MicroOnAnyRanks(t *testing.T) {
	shares := [][]float64{{1, 5, 1}}
	if testenv.At(testenv.Full) {
		shares = append(shares, []float64{4, 1}, Ones(5))
	}
	c := a.Small(t)
	a.micro(t, &c, shares, true)
}

// MicroOverflow checks the same with values beyond float16 in every layer. All ranks
// repeat such exchanges alike and count them.
func (a Architecture) MicroOverflow(t *testing.T) {
	c := a.Small(t)
	c.WeightsScale = 1e7
	a.micro(t, &c, [][]float64{{1, 2, 1}}, false).requireOverflows(t)
}

// MicroOfRandomShapes checks the same of other shapes and weight types.
func (a Architecture) MicroOfRandomShapes(t *testing.T) {
	if !testenv.Rest(t, testenv.Full, "micro-batches of other shapes and weight types,") {
		return
	}
	a.ofRandomShapes(t, 4, 74, func(t *testing.T, c *synthetic.Config, shares []float64, lazy bool) {
		a.micro(t, c, [][]float64{shares}, lazy)
	})
}

// micro is MicroOnAnyRanks of a model. It returns the last group, which sends float16.
func (a Architecture) micro(t *testing.T, c *synthetic.Config, shares [][]float64, lazy bool) (all Members) {
	f, steps := InMemory(t, *c), History(rand.New(rand.NewPCG(67, 68)), c.Vocab)
	cuts, micros := []int{0, 16}, []int{2} // rows of a step that is divided, and of one in micro-batches
	options := []decoder.OpenOptions{{MaxTokens: 48, Reduce: parallel.Exact}, {MaxTokens: 48}}
	if testenv.At(testenv.Full) {
		options = append([]decoder.OpenOptions{{MaxTokens: 48, Wire: parallel.F32}}, options...)
		cuts, micros = []int{0, 1, 16}, []int{2, 20}
	}
	last := c.Layers - 1
	for _, o := range options {
		one, _, err := Play(a.OpenOn(t, f, false, o), steps)
		require.NoError(t, err)
		RequireFinite(t, one)
		for _, s := range shares {
			all = a.OpenAll(t, f, len(s), lazy, o)
			for _, how := range BothShares {
				for _, from := range cuts {
					want, name := one, fmt.Sprint(o.Reduce, o.Wire, how, s, from)
					if o.Reduce != parallel.Exact {
						all.JoinRows(t, how, s, from)
						want = all.Play(t, steps)
					}
					for _, micro := range micros {
						all.JoinPlaced(t, all.Place(t, how, s).DivideRows(from).MicroBatches(micro))
						before := all.exchanges(last)
						RequireSame(t, want, all.Play(t, steps), fmt.Sprint(name, micro))
						require.Greater(t, all.exchanges(last)-before, uint64(len(steps)*a.exchanges(t, f, c, last, how)), "%s: nothing ran in micro-batches", name)
					}
				}
			}
		}
	}
	return all
}

// JoinPlaced is Join with a placement.
func (all Members) JoinPlaced(t testing.TB, p parallel.Placement) {
	for r, g := range memory.Groups(len(all)) {
		all[r].Forget()
		require.NoError(t, all[r].Join(g, p))
	}
}

// exchanges is how many rank 0 has counted in a layer.
func (all Members) exchanges(layer int) uint64 {
	if s := all[0].LayerStats(); len(s) > 0 {
		return s[layer].Exchanges
	}
	return 0
}
