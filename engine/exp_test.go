package engine

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bigExp returns e^x to some hundred bits, for x of at most 0: the Taylor series of
// x/2^32, squared 32 times.
func bigExp(x float64) *big.Float {
	const precision, halvings = 300, 32
	r := big.NewFloat(x).SetPrec(precision)
	r.SetMantExp(r, -halvings)
	term, sum := big.NewFloat(1).SetPrec(precision), big.NewFloat(1).SetPrec(precision)
	for i := 1; i < 20; i++ {
		term.Quo(term.Mul(term, r), big.NewFloat(float64(i)))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

func TestWeigh(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	cases := []float64{0, math.Copysign(0, -1), -math.SmallestNonzeroFloat64, -1e-300, -1e-17, -708, -math.Ln2 / 256, -3 * math.Ln2 / 256, -700 * math.Ln2}
	for range 3000 {
		cases = append(cases, -708*random.Float64(), -40*random.Float64(), -math.Exp(-40*random.Float64()))
	}
	for _, x := range cases {
		want := bigExp(x)
		w := []float64{x}
		require.Equal(t, weigh(w, 0, 1), w[0])
		off := new(big.Float).Sub(big.NewFloat(w[0]), want)
		relative, _ := off.Quo(off, want).Float64()
		require.LessOrEqual(t, math.Abs(relative), 0x1p-51, "e^%g", x)
	}
	w := []float64{3, math.Inf(-1), 3 - 709*2, -math.MaxFloat64, 3}
	require.Equal(t, 2.0, weigh(w, 3, 2))
	require.Equal(t, []float64{1, 0, 0, 0, 1}, w)
}
