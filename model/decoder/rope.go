package decoder

import (
	"math"

	"ringmaster/kernels"
)

// YaRN is the frequency scaling of a RoPE. A Factor of 1 scales nothing.
type YaRN struct {
	Factor   float64 // of the context length
	Original int     // context length before the extension
	BetaFast float64 // turns in Original from which on a pair is not scaled
	BetaSlow float64 // turns in Original up to which a pair is scaled fully
}

// Check adds an error for an impossible scaling. Its keys begin with rope.scaling.
func (y YaRN) Check(r *Keys) {
	if y.Factor < 1 {
		r.Fail("key %q is %v; expected 1 or more", r.Name("rope.scaling.factor"), y.Factor)
	}
	if y.BetaFast < y.BetaSlow {
		r.Fail("keys %q and yarn_beta_slow are %v and %v; expected the first not below the second", r.Name("rope.scaling.yarn_beta_fast"), y.BetaFast, y.BetaSlow)
	}
}

// RoPEFreqs [dim/2] is the angle per position, in radians, of each rotated pair of a RoPE
// of dim elements. y scales the slow pairs (YaRN, arXiv 2309.00071, equation 23): pairs
// that turn more than BetaFast times within the original context keep their frequency,
// pairs that turn less than BetaSlow times get 1/Factor of it, with a linear ramp
// between. The scaling applies at every position, and there is no attention factor: cos
// and sin keep magnitude 1.
func RoPEFreqs(dim int, base float64, y YaRN) []float32 {
	freqs := make([]float32, dim/2)
	lo, hi := 0.0, 0.0
	if y.Factor != 1 {
		turns := func(n float64) float64 {
			return float64(dim) * math.Log(float64(y.Original)/(2*math.Pi*n)) / (2 * math.Log(base))
		}
		lo = math.Max(0, math.Floor(turns(y.BetaFast)))
		hi = math.Min(float64(dim-1), math.Ceil(turns(y.BetaSlow)))
	}
	for i := range freqs {
		f := math.Pow(base, -2*float64(i)/float64(dim))
		if y.Factor != 1 {
			ramp := math.Min(1, math.Max(0, (float64(i)-lo)/math.Max(0.001, hi-lo)))
			f *= ramp/y.Factor + 1 - ramp
		}
		freqs[i] = float32(f)
	}
	return freqs
}

// Freqs is RoPEFreqs in memory of a backend. Its error is the backend's.
func Freqs(b kernels.Backend, dim int, base float64, y YaRN) ([]float32, error) {
	f, err := kernels.Make[float32](b, dim/2)
	copy(f, RoPEFreqs(dim, base, y))
	return f, err
}
