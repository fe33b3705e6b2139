package decodertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// JoinRows is Join with a placement that divides the rows of steps of at least from rows.
func (all Members) JoinRows(t testing.TB, how parallel.Share, shares []float64, from int) {
	all.join(t, memory.Groups(len(all)), all.Place(t, how, shares).DivideRows(from))
}

// exchanges is how many rank 0 has counted in a layer.
func (all Members) exchanges(layer int) uint64 {
	if s := all[0].LayerStats(); len(s) > 0 {
		return s[layer].Exchanges
	}
	return 0
}

// RowsOnAnyRanks checks that dividing the rows of steps changes no bit, wherever the cuts
// are. With exact the logits are those of one rank, with sum those of the same ranks that
// all compute all rows. Backends that run nothing before Flush compute the same.
func (a Architecture) RowsOnAnyRanks(t *testing.T) {
	shares := [][]float64{Ones(2), {1, 5, 1}, {8, 7, 6, 5, 4, 3, 2, 1}}
	if testenv.At(testenv.Exhaustive) {
		shares = groupShares[1:]
	}
	c := a.Small(t)
	a.rows(t, &c, shares, false)
}

// RowsOverflow checks the same with values beyond float16 in every layer.
func (a Architecture) RowsOverflow(t *testing.T) {
	c := a.Small(t)
	c.WeightsScale = 1e7
	a.rows(t, &c, [][]float64{{1, 2, 1}}, true).requireOverflows(t)
}

// requireOverflows checks that exchanges were repeated in float32, alike on two ranks.
func (all Members) requireOverflows(t *testing.T) {
	t.Helper()
	overflows := uint64(0)
	for i, s := range all[0].LayerStats() {
		require.Equal(t, all[1].LayerStats()[i].Overflows, s.Overflows)
		overflows += s.Overflows
	}
	require.NotZero(t, overflows)
}

// RowsOfRandomShapes checks the same of other shapes and weight types.
func (a Architecture) RowsOfRandomShapes(t *testing.T) {
	shapes := 2
	switch {
	case testenv.At(testenv.Exhaustive):
		shapes = 12
	case testenv.At(testenv.Full):
		shapes = 4
	}
	a.ofRandomShapes(t, shapes, 72, func(t *testing.T, c *synthetic.Config, shares []float64, lazy bool) {
		a.rows(t, c, [][]float64{shares}, lazy)
	})
}

// ofRandomShapes runs a check on so many models of random shapes and weight types, each
// with the shares of 2 to 5 ranks, every other one on backends that run nothing before
// Flush.
func (a Architecture) ofRandomShapes(t *testing.T, shapes int, seed uint64, check func(t *testing.T, c *synthetic.Config, shares []float64, lazy bool)) {
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), seed))
			c := a.Random(t, r)
			shares := make([]float64, 2+r.IntN(4))
			for i := range shares {
				shares[i] = 0.1 + r.Float64()
			}
			check(t, &c, shares, i%2 > 0)
		})
	}
}

// rows is RowsOnAnyRanks of a model. It returns the last group.
func (a Architecture) rows(t *testing.T, c *synthetic.Config, shares [][]float64, lazy bool) (all Members) {
	f, steps := InMemory(t, *c), History(rand.New(rand.NewPCG(61, 62)), c.Vocab)
	for _, o := range []decoder.OpenOptions{{MaxTokens: 48, Wire: parallel.F32}, {MaxTokens: 48, Reduce: parallel.Exact}, {MaxTokens: 48}} {
		one := a.PlayAlone(t, f, o, steps)
		RequireFinite(t, one)
		for _, s := range shares {
			all = a.OpenAll(t, f, len(s), lazy, o)
			for _, how := range BothShares {
				want := one
				if o.Reduce != parallel.Exact {
					all.Join(t, how, s)
					want = all.Play(t, steps)
				}
				for _, from := range []int{1, 16} { // 16: some steps are divided
					all.JoinRows(t, how, s, from)
					last := c.Layers - 1
					before := all.exchanges(last)
					RequireSame(t, want, all.Play(t, steps), fmt.Sprint(o.Reduce, o.Wire, how, s, from))
					require.Greater(t, all.exchanges(last)-before, uint64(len(steps)*a.exchanges(t, f, c, last, how)), "rows were divided")
				}
			}
		}
	}
	return all
}

// unpacked is a backend that sends rows as float32.
type unpacked struct{ kernels.Backend }

// PackedRows checks that rows gathered around the experts in packed form give the bits of
// rows that travel as float32, with fewer bytes. They are packed only where all their
// readers use that form.
func (a Architecture) PackedRows(t *testing.T) {
	for _, routed := range []gguf.Type{gguf.Q8_0, gguf.F16} {
		for _, shared := range []gguf.Type{gguf.Q8_0, gguf.F16} {
			c := a.Small(t)
			c.Types.Gate, c.Types.Up, c.Types.Dense = routed, routed, shared
			cuts := []int{16} // some steps are divided
			if testenv.At(testenv.Exhaustive) {
				cuts = []int{1, 16}
			}
			f, steps := InMemory(t, c), History(rand.New(rand.NewPCG(63, 64)), c.Vocab)
			for _, reduce := range []parallel.Reduce{parallel.Exact, parallel.Sum} {
				o := decoder.OpenOptions{MaxTokens: 48, Reduce: reduce}
				float, packs := make(Members, 3), a.OpenAll(t, f, 3, false, o)
				for i := range float {
					b, err := cpu.New(1)
					require.NoError(t, err)
					float[i] = a.openWith(t, f, unpacked{b}, o)
				}
				for _, how := range BothShares {
					for _, from := range cuts {
						name := fmt.Sprint(routed, shared, reduce, how, from)
						was := [2]uint64{float.sent(), packs.sent()}
						float.JoinRows(t, how, []float64{1, 5, 2}, from)
						want := float.Play(t, steps)
						packs.JoinRows(t, how, []float64{1, 5, 2}, from)
						RequireSame(t, want, packs.Play(t, steps), name)
						whole, less := float.sent()-was[0], packs.sent()-was[1]
						if routed == gguf.Q8_0 && (shared == gguf.Q8_0 || how == parallel.ShareExperts) {
							require.Less(t, less, whole, name)
						} else {
							require.Equal(t, whole, less, name)
						}
					}
				}
			}
		}
	}
}

// sent is the bytes that the members have sent in layers.
func (all Members) sent() (n uint64) {
	for _, m := range all {
		for _, l := range m.LayerStats() {
			n += l.Sent
		}
	}
	return n
}
