package engine

import (
	"math"
	"math/big"
)

// expBits is the logarithm of the size of expTable.
const expBits = 7

// expTable[i] is 2^(i/128), rounded to nearest.
var expTable = func() (table [1 << expBits]float64) {
	const precision = 120
	roots := [expBits]*big.Float{} // roots[b] is 2^(2^b/128)
	root := big.NewFloat(2).SetPrec(precision)
	for b := expBits - 1; b >= 0; b-- {
		root = new(big.Float).SetPrec(precision).Sqrt(root)
		roots[b] = root
	}
	for i := range table {
		x := big.NewFloat(1).SetPrec(precision)
		for b, root := range roots {
			if i>>b&1 == 1 {
				x.Mul(x, root)
			}
		}
		table[i], _ = x.Float64()
	}
	return table
}()

// weigh turns logits w into weights, e^((logit-top)/temperature), and returns their sum; top is
// at least the largest logit. A weight is within 2^-51 of the power of the rounded exponent,
// and 0 below e^-708, which is about to be subnormal. It is faster than math.Exp
// (BenchmarkDraw), and has the same bits on every processor: the conversions forbid fused
// products.
//
// The exponent x is split into n/128 ln 2 + r, so that e^x is 2^(n/128), from the table,
// times e^r, whose Taylor series needs five terms because r is at most ln 2/256.
func weigh(w []float64, top, temperature float64) (sum float64) {
	const (
		size  = 1 << expBits
		round = 3 << 51 // adding and subtracting it rounds to an integer
		// ln 2/128 in two parts; the product of the first, of 36 bits, with n, of 17, is exact.
		high = 0x1.62e42fefap-1 / size
		low  = math.Ln2/size - high
	)
	for i, logit := range w {
		x := (logit - top) / temperature
		if x < -708 {
			w[i] = 0
			continue
		}
		whole := float64(x*(size/math.Ln2)) + round - round
		n := int64(whole)
		r := x - float64(whole*high) - float64(whole*low)
		p := float64(r*(1.0/120)) + 1.0/24
		p = float64(p*r) + 1.0/6
		p = float64(p*r) + 0.5
		p = float64(float64(p*r)*r) + r
		scale := math.Float64frombits(math.Float64bits(expTable[n&(size-1)]) + uint64(n>>expBits)<<52)
		w[i] = scale + float64(scale*p)
		sum += w[i]
	}
	return sum
}
