package cost

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
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

// Fit finds the line through the medians of the measurements of each size with the least
// sum of squares of the relative residuals, of all lines without a negative coefficient: a
// cost that falls with the size is noise. Sizes that do not tell coefficients apart, such
// as a single one, give a line with fewer of them, which Checked does not vouch for. A
// measurement that is not positive and finite is an error.
//
// The line's Error is what it errs by at a size that it was not fitted to, and how far
// repetitions of one size lie apart: residuals say neither.
func Fit(samples []Sample) (Line, error) {
	if len(samples) == 0 {
		return Line{}, ErrNoSamples
	}
	sizes := map[[2]float64][]float64{}
	for _, s := range samples {
		for _, v := range []float64{s.Seconds, s.Bytes, s.Work} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return Line{}, fmt.Errorf("cost: a measurement of %v bytes and %v of work took %v s; expected numbers that are not negative", s.Bytes, s.Work, s.Seconds)
			}
		}
		if s.Seconds == 0 {
			return Line{}, fmt.Errorf("cost: a measurement of %v bytes and %v of work took no time; the clock is too coarse", s.Bytes, s.Work)
		}
		sizes[[2]float64{s.Bytes, s.Work}] = append(sizes[[2]float64{s.Bytes, s.Work}], s.Seconds)
	}
	middle, spread := middles(sizes)
	best, found := fit(middle)
	if !found {
		return Line{}, fmt.Errorf("cost: no line with coefficients that are not negative fits %d measurements", len(samples))
	}
	best.Points, best.Sizes = len(samples), len(sizes)
	best.Error = math.Min(math.Hypot(math.Max(best.Error, heldOut(middle)), spread), 1)
	return best, nil
}

// oneRow is how much more Work for each byte than the least a product of one row has at
// most.
const oneRow = 1.5

// wide is how many times the least Work for each byte the greatest must have to show what
// rows take, beside bytes.
const wide = 2

// FitOp finds the line of a kind of op: that of Fit, but of products with weights one for
// one row and another for more, if enough of those were measured, and of what only moves
// rows one with Knots.
func FitOp(samples []Sample, weights bool) (Line, error) {
	l, err := Fit(samples)
	if err != nil {
		return l, err
	}
	if !weights {
		return interpolated(l, samples), nil
	}
	least := math.Inf(1)
	for _, s := range samples {
		if s.Bytes > 0 {
			least = math.Min(least, s.Work/s.Bytes)
		}
	}
	var few, more []Sample
	for _, s := range samples {
		if s.Work > oneRow*least*s.Bytes {
			more = append(more, s)
		} else {
			few = append(few, s)
		}
	}
	// Products of the same number of rows do not tell what a row takes from what a byte
	// does; beside those of one row, they do.
	if len(few) == 0 || !tellsRows(more) {
		return l, nil
	}
	one, err := Fit(few)
	if err != nil {
		return l, err
	}
	many, err := Fit(more)
	if err != nil {
		return l, err
	}
	one.Many, one.From = &many, oneRow*least
	return one, nil
}

// tellsRows reports whether samples have enough sizes, and numbers of rows far enough
// apart, for a line with all coefficients.
func tellsRows(samples []Sample) bool {
	sizes, least, most := map[[2]float64]bool{}, math.Inf(1), 0.0
	for _, s := range samples {
		sizes[[2]float64{s.Bytes, s.Work}] = true
		least, most = math.Min(least, s.Work/s.Bytes), math.Max(most, s.Work/s.Bytes)
	}
	return len(sizes) > 2 && most > wide*least
}

// interpolated is a line through samples with Knots, if their time depends on bytes alone.
func interpolated(l Line, samples []Sample) Line {
	sizes := map[[2]float64][]float64{}
	for _, s := range samples {
		if s.Work > 0 || s.Bytes == 0 {
			return l
		}
		sizes[[2]float64{s.Bytes}] = append(sizes[[2]float64{s.Bytes}], s.Seconds)
	}
	middle, spread := middles(sizes)
	if len(middle) < 2 {
		return l
	}
	for i, s := range middle {
		if i > 0 { // more bytes do not take less
			s.Seconds = math.Max(s.Seconds, l.Knots[i-1].Seconds)
		}
		l.Knots = append(l.Knots, Knot{s.Bytes, s.Seconds})
	}
	sum, held := 0.0, l
	for i := 1; i+1 < len(l.Knots); i++ {
		held.Knots = slices.Concat(l.Knots[:i], l.Knots[i+1:])
		e := held.Seconds(l.Knots[i].Bytes, 0)/l.Knots[i].Seconds - 1
		sum += e * e
	}
	if n := len(l.Knots) - 2; n > 0 {
		l.Error = math.Min(math.Hypot(math.Sqrt(sum/float64(n)), spread), 1)
	}
	return l
}

// middles is the medians of the measurements of each size, in the order of sizes, and how
// far from the median of its size a measurement lies, as a relative standard deviation.
func middles(sizes map[[2]float64][]float64) (out []Sample, spread float64) {
	for at, times := range sizes {
		out = append(out, Sample{Bytes: at[0], Work: at[1], Seconds: Median(times)})
	}
	slices.SortFunc(out, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Work, b.Work))
	})
	var off []float64
	for _, s := range out {
		off = append(off, deviations(sizes[[2]float64{s.Bytes, s.Work}], s.Seconds)...)
	}
	return out, standard(off)
}

// deviations is how far times lie from their median, as parts of it, without that of the
// median itself.
func deviations(times []float64, median float64) []float64 {
	out := make([]float64, len(times))
	for i, t := range times {
		out[i] = math.Abs(t/median - 1)
	}
	slices.Sort(out)
	return out[1:]
}

// standard estimates a standard deviation by the median of deviations, which a repetition
// that something has interrupted does not change; 0 without any.
func standard(off []float64) float64 {
	if len(off) == 0 {
		return 0
	}
	slices.Sort(off)
	return 1.4826 * stat.Quantile(0.5, stat.Empirical, off, nil) // of a normal distribution
}

// Median is the middle of some times, at least one; of an even number the lower.
func Median(times []float64) float64 {
	return stat.Quantile(0.5, stat.Empirical, slices.Sorted(slices.Values(times)), nil)
}

// Spread is the relative standard deviation of repetitions, by their median; 0 of fewer
// than two.
func Spread(times []float64) float64 {
	if len(times) < 2 {
		return 0
	}
	return standard(deviations(times, Median(times)))
}

// fit is the best line through samples of different sizes, with the root mean square of
// its relative residuals; false if there is none.
func fit(samples []Sample) (best Line, found bool) {
	for _, set := range columns {
		l, ok := solve(samples, set)
		if ok && (!found || l.Error < better*best.Error) {
			best, found = l, true
		}
	}
	return best, found
}

// heldOut is the root mean square of the relative errors of lines at the one size that each
// was not fitted to. Fewer than three sizes show nothing.
func heldOut(samples []Sample) float64 {
	if len(samples) < 3 {
		return 0
	}
	sum := 0.0
	for i, s := range samples {
		l, ok := fit(slices.Concat(samples[:i], samples[i+1:]))
		e := 1.0
		if ok {
			e = math.Min(math.Abs(l.Seconds(s.Bytes, s.Work)/s.Seconds-1), 1)
		}
		sum += e * e
	}
	return math.Sqrt(sum / float64(len(samples)))
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
