package cost

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Sample is one measurement of an op or an exchange.
type Sample struct {
	Bytes, Work float64
	Seconds     float64
}

// ErrNoSamples: there was nothing to fit a line to.
var ErrNoSamples = errors.New("cost: no measurements")

// columns are the sets of coefficients that Fit tries, each a bit of fixed, per byte
// and per work. Among lines that fit alike the first is taken.
var columns = []int{2, 4, 1, 3, 5, 6, 7}

// better is how much smaller the residual of a line with more coefficients must be.
const better = 0.999

// Fit finds the line through measurements with the least sum of squares of the
// relative residuals, of all lines without a negative coefficient: a cost that falls
// with the size is noise. Sizes that do not tell coefficients apart, such as a single
// one, give a line with fewer of them, which Checked does not vouch for. A measurement
// that is not positive and finite is an error.
func Fit(samples []Sample) (Line, error) {
	if len(samples) == 0 {
		return Line{}, ErrNoSamples
	}
	sizes := map[[2]float64]bool{}
	for _, s := range samples {
		for _, v := range []float64{s.Seconds, s.Bytes, s.Work} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return Line{}, fmt.Errorf("cost: a measurement of %v bytes and %v of work took %v s; expected numbers that are not negative", s.Bytes, s.Work, s.Seconds)
			}
		}
		if s.Seconds == 0 {
			return Line{}, fmt.Errorf("cost: a measurement of %v bytes and %v of work took no time; the clock is too coarse", s.Bytes, s.Work)
		}
		sizes[[2]float64{s.Bytes, s.Work}] = true
	}
	best, found := Line{}, false
	for _, set := range columns {
		l, ok := solve(samples, set)
		if ok && (!found || l.Error < better*best.Error) {
			best, found = l, true
		}
	}
	if !found {
		return Line{}, fmt.Errorf("cost: no line with coefficients that are not negative fits %d measurements", len(samples))
	}
	best.Points, best.Sizes = len(samples), len(sizes)
	return best, nil
}

// solve is the least squares line with a set of coefficients; false if they cannot be
// told apart, or if one of them is negative.
func solve(samples []Sample, set int) (Line, bool) {
	var of []func(Sample) float64
	for i, f := range []func(Sample) float64{
		func(Sample) float64 { return 1 },
		func(s Sample) float64 { return s.Bytes },
		func(s Sample) float64 { return s.Work },
	} {
		if set&(1<<i) != 0 {
			of = append(of, f)
		}
	}
	if len(samples) < len(of) {
		return Line{}, false
	}
	// Rows are divided by the measured time, so that residuals are relative;
	// columns by their largest value, so that the condition number means something.
	a, b, scale := mat.NewDense(len(samples), len(of), nil), mat.NewVecDense(len(samples), nil), make([]float64, len(of))
	for i, s := range samples {
		b.SetVec(i, 1)
		for j, f := range of {
			a.Set(i, j, f(s)/s.Seconds)
			scale[j] = math.Max(scale[j], a.At(i, j))
		}
	}
	for j, top := range scale {
		if top == 0 {
			return Line{}, false
		}
		for i := range samples {
			a.Set(i, j, a.At(i, j)/top)
		}
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err != nil { // singular, or close to it
		return Line{}, false
	}
	coefficients := [3]float64{}
	for i, j := 0, 0; i < 3; i++ {
		if set&(1<<i) == 0 {
			continue
		}
		if coefficients[i] = x.AtVec(j) / scale[j]; coefficients[i] < 0 {
			return Line{}, false
		}
		j++
	}
	l := Line{Fixed: coefficients[0], PerByte: coefficients[1], PerWork: coefficients[2]}
	sum := 0.0
	for _, s := range samples {
		e := l.Seconds(s.Bytes, s.Work)/s.Seconds - 1
		sum += e * e
	}
	l.Error = math.Sqrt(sum / float64(len(samples)))
	return l, true
}
