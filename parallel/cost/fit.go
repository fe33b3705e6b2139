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

// ErrNoSamples: Fit received no samples.
var ErrNoSamples = errors.New("no measurements")

// columns are the sets of coefficients that Fit tries, with a bit each for fixed, per byte
// and per work. Of lines that fit equally well it takes the first.
var columns = []int{2, 4, 1, 3, 5, 6, 7}

// better is the factor by which the residual of a line with more coefficients must be
// smaller.
const better = 0.999

// Fit finds the line through the medians of the measurements of each size with the least
// sum of squares of the relative residuals. It considers only lines without a negative
// coefficient, because a cost that falls with the size is noise. If the sizes do not
// separate the coefficients, such as a single size, the line has fewer of them, and
// Checked is false. A measurement that is not positive and finite is an error.
//
// The line's Error combines its error at a size that it was not fitted to and the distance
// between repetitions of one size, because residuals show neither.
func Fit(samples []Sample) (Line, error) {
	if len(samples) == 0 {
		return Line{}, ErrNoSamples
	}
	sizes := map[[2]float64][]float64{}
	for _, s := range samples {
		for _, v := range []float64{s.Seconds, s.Bytes, s.Work} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return Line{}, fmt.Errorf("a measurement of %v bytes and %v of work took %v s; expected numbers of 0 or more", s.Bytes, s.Work, s.Seconds)
			}
		}
		if s.Seconds == 0 {
			return Line{}, fmt.Errorf("a measurement of %v bytes and %v of work took no time; the clock is too coarse", s.Bytes, s.Work)
		}
		sizes[[2]float64{s.Bytes, s.Work}] = append(sizes[[2]float64{s.Bytes, s.Work}], s.Seconds)
	}
	middle, spread := middles(sizes)
	best, found := fit(middle)
	if !found {
		return Line{}, fmt.Errorf("no line without negative coefficients fits %d measurements", len(samples))
	}
	best.Points, best.Sizes = len(samples), len(sizes)
	best.Error = math.Min(math.Hypot(math.Max(best.Error, heldOut(middle)), spread), 1)
	return best, nil
}

// oneRow bounds a product of one row: its Work per byte is at most this factor above the
// least.
const oneRow = 1.5

// wide is the ratio between the greatest and the least Work per byte from which
// measurements show the cost of rows beside that of bytes.
const wide = 2

// FitOp finds the line of a kind of op. It differs from Fit in two cases: products with
// weights get one line for one row and another for more, if enough of those were measured;
// ops that only move rows get a line with Knots.
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
	// Products of equally many rows do not separate the cost of a row from that of a byte,
	// so they are fitted together with those of one row.
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

// interpolated returns a line with Knots through the samples, if their time depends on
// bytes alone.
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
		if i > 0 { // more bytes must not take less time
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

// middles returns the medians of the measurements of each size, in the order of sizes, and
// the distance of a measurement from the median of its size, as a relative standard
// deviation.
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

// deviations returns the relative distances of times from their median, without that of
// the median itself.
func deviations(times []float64, median float64) []float64 {
	out := make([]float64, len(times))
	for i, t := range times {
		out[i] = math.Abs(t/median - 1)
	}
	slices.Sort(out)
	return out[1:]
}

// standard estimates a standard deviation by the median of deviations, because an
// interrupted repetition does not change the median; 0 without any.
func standard(off []float64) float64 {
	if len(off) == 0 {
		return 0
	}
	slices.Sort(off)
	return 1.4826 * stat.Quantile(0.5, stat.Empirical, off, nil) // of a normal distribution
}

// Median returns the middle of at least one time; for an even number of times the lower
// middle.
func Median(times []float64) float64 {
	return stat.Quantile(0.5, stat.Empirical, slices.Sorted(slices.Values(times)), nil)
}

// Spread returns the relative standard deviation of repetitions, by their median; 0 for
// fewer than two.
func Spread(times []float64) float64 {
	if len(times) < 2 {
		return 0
	}
	return standard(deviations(times, Median(times)))
}

// fit returns the best line through samples of different sizes, with the root mean square
// of its relative residuals; false if no line fits.
func fit(samples []Sample) (best Line, found bool) {
	for _, set := range columns {
		l, ok := solve(samples, set)
		if ok && (!found || l.Error < better*best.Error) {
			best, found = l, true
		}
	}
	return best, found
}

// heldOut leaves out each size in turn and returns the root mean square of the relative
// errors there. Fewer than three sizes show nothing.
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

// solve returns the least squares line with a set of coefficients; false if the samples do
// not separate them, or if one of them is negative.
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
