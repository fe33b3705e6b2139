package decodertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// ExactOnAnyRanks checks that with exact the logits of any number of ranks, with any
// shares, are the bits of one rank: prefill in odd chunks, decode, several
// sequences in a step.
func (a Architecture) ExactOnAnyRanks(t *testing.T) {
	c := a.Small(t)
	c.Experts = 21
	f := InMemory(t, c)
	steps := History(rand.New(rand.NewPCG(21, 22)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	want, digests, err := Play(a.OpenOn(t, f, false, o), steps)
	require.NoError(t, err)
	require.Empty(t, digests[0], "no other rank has to agree")
	RequireFinite(t, want)
	for _, shares := range groupShares {
		all := a.OpenAll(t, f, len(shares), false, o)
		for _, how := range BothShares {
			all.Join(t, how, shares)
			RequireSame(t, want, all.Play(t, steps), fmt.Sprint(how, shares))
		}
	}
	o.Wire = parallel.F32
	for _, how := range BothShares {
		all := a.OpenAll(t, f, 3, false, o)
		all.Join(t, how, Ones(3))
		RequireSame(t, want, all.Play(t, steps), "float32 on the wire")
	}
}

// ExactOfRandomShapes checks the same of other shapes and weight types.
func (a Architecture) ExactOfRandomShapes(t *testing.T) {
	a.ofRandomShapes(t, 6, 71, func(t *testing.T, c *synthetic.Config, shares []float64, lazy bool) {
		f, steps := InMemory(t, *c), History(rand.New(rand.NewPCG(73, 74)), c.Vocab)
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
		want := a.PlayAlone(t, f, o, steps)
		all := a.OpenAll(t, f, len(shares), lazy, o)
		for _, how := range BothShares {
			all.Join(t, how, shares)
			RequireSame(t, want, all.Play(t, steps), fmt.Sprint(how, shares))
		}
	})
}

// ExactOfWholeModels checks the same of whole models, by name, in prefill chunks and
// decode.
func (a Architecture) ExactOfWholeModels(t *testing.T, files map[string]*gguf.File) {
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
			one := a.OpenOn(t, f, false, o)
			steps := History(rand.New(rand.NewPCG(33, 34)), min(one.Info().Vocab, 400))
			want, _, err := Play(one, steps)
			require.NoError(t, err)
			RequireFinite(t, want)
			for i, shares := range [][]float64{Ones(2), {3, 2, 1}, Ones(3), {5, 1, 1, 2}, Ones(4), Ones(5), Ones(8), {8, 7, 6, 5, 4, 3, 2, 1}} {
				all := a.OpenAll(t, f, len(shares), false, o)
				how := BothShares[(i+1)%2]
				all.Join(t, how, shares)
				RequireSame(t, want, all.Play(t, steps), fmt.Sprint(how, shares))
			}
		})
	}
}

// SumOnAnyRanks checks that with sum all ranks agree among themselves, and are close
// to one rank, closer with float32 on the wire.
func (a Architecture) SumOnAnyRanks(t *testing.T) {
	_, f, steps := a.small(t, 23)
	want := a.PlayAlone(t, f, decoder.OpenOptions{MaxTokens: 48}, steps)
	for _, how := range BothShares {
		for _, shares := range groupShares[1:] {
			var far [2]float64
			for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
				all := a.OpenAll(t, f, len(shares), false, decoder.OpenOptions{MaxTokens: 48, Wire: wire})
				all.Join(t, how, shares)
				far[wire] = distance(want, all.Play(t, steps))
			}
			t.Logf("%v %v: f16 %.2g, f32 %.2g", how, shares, far[parallel.F16], far[parallel.F32])
			require.Less(t, far[parallel.F16], 0.005)
			require.Less(t, far[parallel.F32], far[parallel.F16]/2)
		}
	}
}

// distance is the root mean square of the difference, relative to want, of the median
// row. It takes the median because rows with two nearly tied experts may be far off.
func distance(want, got [][]float32) float64 {
	rows := make([]float64, len(want))
	for i := range want {
		rows[i] = relative(want[i], got[i])
	}
	slices.Sort(rows)
	return rows[len(rows)/2]
}

// OverflowOnRanks checks that with sum expert outputs beyond the range of float16 make the
// ranks repeat the exchange in float32, and are counted. With exact they need no other
// exchange. The logits are finite and equal on all ranks.
func (a Architecture) OverflowOnRanks(t *testing.T) {
	c := a.Small(t)
	c.WeightsScale = 1e7
	f := InMemory(t, c)
	steps := History(rand.New(rand.NewPCG(25, 26)), c.Vocab)
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: reduce}
		want := a.PlayAlone(t, f, o, steps)
		RequireFinite(t, want)
		for _, how := range BothShares {
			all := a.OpenAll(t, f, 3, false, o)
			all.Join(t, how, []float64{1, 2, 1})
			got := all.Play(t, steps)
			RequireFinite(t, got)
			if reduce == parallel.Exact {
				RequireSame(t, want, got, "overflow")
			} else {
				all.requireOverflows(t)
			}
			for i, s := range all[0].LayerStats() {
				require.EqualValues(t, a.exchanges(t, f, &c, i, how)*len(steps), s.Exchanges, "layer %d", i)
			}
		}
	}
}

// exchanges is how many exchanges a layer of a model has: of the outputs of its experts,
// or of the dense FFN in their place if the plan divides that, and of those of its heads.
func (a Architecture) exchanges(t *testing.T, f *gguf.File, c *synthetic.Config, layer int, how parallel.Share) int {
	plan, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 48}, 1)
	require.NoError(t, err)
	n := 0
	if layer >= c.Latent.Dense || how == parallel.ShareAll && plan.DenseFFN.Terms > 0 {
		n++
	}
	if how == parallel.ShareAll {
		n++
	}
	return n
}

// GroupFlushes checks that the group computes the same bits on backends that run nothing
// before Flush and show NaN until then: what the host sends has been flushed, and the
// host writes nothing that an encoded op still reads.
func (a Architecture) GroupFlushes(t *testing.T) {
	_, f, steps := a.small(t, 27)
	for _, o := range []decoder.OpenOptions{
		{MaxTokens: 48}, {MaxTokens: 48, Wire: parallel.F32}, {MaxTokens: 48, Reduce: parallel.Exact}, {MaxTokens: 48, Reduce: parallel.Exact, Wire: parallel.F32},
	} {
		shares := []float64{2, 1, 1}
		eager, lazy := a.OpenAll(t, f, 3, false, o), a.OpenAll(t, f, 3, true, o)
		for _, how := range BothShares {
			eager.Join(t, how, shares)
			lazy.Join(t, how, shares)
			RequireSame(t, eager.Play(t, steps), lazy.Play(t, steps), fmt.Sprint(how, o.Reduce, o.Wire))
		}
	}
}
