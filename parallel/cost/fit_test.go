package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured returns the seconds of a line at sizes, each n times, with a relative noise.
func measured(l Line, noise float64, n int, sizes ...[2]float64) (out []Sample) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, x := range sizes {
		for range n {
			s := l.Seconds(x[0], x[1]) * (1 + noise*(2*random.Float64()-1))
			out = append(out, Sample{Bytes: x[0], Work: x[1], Seconds: s})
		}
	}
	return out
}

// TestKnownCoefficients: Fit finds the coefficients of synthetic measurements, and its
// Error covers their noise and the resulting error at sizes between them.
func TestKnownCoefficients(t *testing.T) {
	products := [][2]float64{{1e6, 1e6}, {8e6, 8e6}, {1e6, 512e6}, {8e6, 4096e6}, {4e6, 256e6}}
	links := [][2]float64{{2048, 0}, {16384, 0}, {1 << 17, 0}, {1 << 20, 0}, {1 << 22, 0}}
	for name, test := range map[string]struct {
		line   Line
		noise  float64
		sizes  [][2]float64
		within float64
	}{
		"product":            {Line{Fixed: 2e-6, PerByte: 1e-10, PerWork: 3e-12}, 0, products, 1e-6},
		"noisy product":      {Line{Fixed: 2e-6, PerByte: 1e-10, PerWork: 3e-12}, 0.1, products, 0.12},
		"without work":       {Line{Fixed: 3e-5, PerByte: 1e-9}, 0, links, 1e-6},
		"noisy link":         {Line{Fixed: 2e-4, PerByte: 8e-9}, 0.05, links, 0.06},
		"no fixed part":      {Line{PerByte: 1e-10, PerWork: 1e-12}, 0, products, 1e-6},
		"free but for calls": {Line{Fixed: 5e-7}, 0, products, 1e-6},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Fit(measured(test.line, test.noise, 9, test.sizes...))
			require.NoError(t, err)
			require.True(t, got.Checked())
			require.Equal(t, 9*len(test.sizes), got.Points)
			require.Equal(t, len(test.sizes), got.Sizes)
			require.LessOrEqual(t, got.Error, 2*test.noise+1e-6)
			if test.noise > 0 {
				require.Greater(t, got.Error, test.noise/4)
			}
			for _, x := range test.sizes {
				require.InEpsilon(t, test.line.Seconds(x[0], x[1]), got.Seconds(x[0], x[1]), test.within)
			}
		})
	}
}

// TestDegenerate: samples that do not determine a line give one that is not Checked.
func TestDegenerate(t *testing.T) {
	one, err := Fit([]Sample{{Bytes: 100, Work: 100, Seconds: 2}})
	require.NoError(t, err)
	require.False(t, one.Checked())
	require.InDelta(t, 2, one.Seconds(100, 100), 1e-9)

	same, err := Fit(measured(Line{PerByte: 1e-9}, 0.2, 20, [2]float64{1e6, 0}))
	require.NoError(t, err)
	require.Equal(t, 1, same.Sizes)
	require.False(t, same.Checked())

	// Bytes and work are proportional here.
	collinear, err := Fit(measured(Line{Fixed: 1e-6, PerByte: 1e-9, PerWork: 1e-9}, 0, 1, [2]float64{1e3, 1e3}, [2]float64{1e4, 1e4}, [2]float64{1e5, 1e5}))
	require.NoError(t, err)
	require.InEpsilon(t, 1e-6+2e-6, collinear.Seconds(1e3, 1e3), 1e-6)

	// A cost that falls with the size: the line is level, and its Error shows how wrong it
	// is.
	falling, err := Fit([]Sample{{Bytes: 1e3, Seconds: 3}, {Bytes: 1e4, Seconds: 2}, {Bytes: 1e5, Seconds: 1}})
	require.NoError(t, err)
	require.Zero(t, falling.PerByte)
	require.Greater(t, falling.Error, 0.3)
	require.True(t, falling.Checked())
}

// TestBadSamples: Fit names the wrong sample.
func TestBadSamples(t *testing.T) {
	_, err := Fit(nil)
	require.ErrorIs(t, err, ErrNoSamples)
	for _, s := range []Sample{{Bytes: -1, Seconds: 1}, {Work: math.NaN(), Seconds: 1}, {Seconds: math.Inf(1)}, {Seconds: -1}} {
		_, err := Fit([]Sample{{Bytes: 1, Seconds: 1}, s})
		require.ErrorContains(t, err, "0 or more")
	}
	_, err = Fit([]Sample{{Bytes: 1}})
	require.ErrorContains(t, err, "took no time")
	_, err = Fit([]Sample{{Seconds: 1}})
	require.NoError(t, err, "a barrier has a latency and no bytes")
}

// TestFitOp: products of one row and of more have their own lines; ops that only move rows
// are interpolated between the measured sizes and proportional beyond them.
func TestFitOp(t *testing.T) {
	one, many := Line{Fixed: 1e-6, PerByte: 1e-10}, Line{Fixed: 5e-6, PerByte: 2e-10, PerWork: 4e-12}
	samples := slices.Concat(measured(one, 0, 3, [2]float64{1e5, 1e5}, [2]float64{1e6, 1e6}, [2]float64{4e6, 4e6}),
		measured(many, 0, 3, [2]float64{1e5, 32e5}, [2]float64{1e6, 32e6}, [2]float64{1e6, 128e6}, [2]float64{4e6, 512e6}))
	l, err := FitOp(samples, true)
	require.NoError(t, err)
	for _, x := range [][2]float64{{2e5, 2e5}, {3e6, 3e6}} {
		require.InEpsilon(t, one.Seconds(x[0], x[1]), l.Seconds(x[0], x[1]), 1e-6)
	}
	for _, x := range [][2]float64{{2e5, 64e5}, {3e6, 1e9}} {
		require.InEpsilon(t, many.Seconds(x[0], x[1]), l.Seconds(x[0], x[1]), 1e-6)
	}
	require.GreaterOrEqual(t, l.Seconds(1e6, 1.6e6), l.Seconds(1e6, 1e6), "two rows take no less than one")

	// With only one other number of rows beside one row, each further row still costs
	// time.
	same := slices.Concat(measured(many, 0, 3, [2]float64{1e5, 1e5}, [2]float64{4e6, 4e6}), measured(many, 0, 3, [2]float64{1e5, 32e5}, [2]float64{1e6, 32e6}, [2]float64{4e6, 128e6}))
	l, err = FitOp(same, true)
	require.NoError(t, err)
	require.InEpsilon(t, many.Seconds(4e6, 512*4e6), l.Seconds(4e6, 512*4e6), 1e-3)

	moved := []Sample{{Bytes: 1e3, Seconds: 1e-6}, {Bytes: 1e5, Seconds: 5e-6}, {Bytes: 1e5, Seconds: 5e-6}, {Bytes: 1e6, Seconds: 4e-6}, {Bytes: 1e7, Seconds: 1e-3}}
	l, err = FitOp(moved, false)
	require.NoError(t, err)
	require.InEpsilon(t, 1e-6, l.Seconds(1e3, 0), 1e-9)
	require.InEpsilon(t, 3e-6, l.Seconds(50.5e3, 0), 1e-9)
	require.InEpsilon(t, 5e-6, l.Seconds(1e6, 0), 1e-9, "more bytes take no less")
	require.InEpsilon(t, 2e-3, l.Seconds(2e7, 0), 1e-9)
	require.Positive(t, l.Seconds(1, 0))
	require.LessOrEqual(t, l.Seconds(1, 0), 1e-6)
	require.Greater(t, l.Error, 0.3, "a size that was left out would have been far off")
}

// TestSpread: a single interrupted repetition does not count; repetitions that differ make
// a line less trusted, although it fits their medians.
func TestSpread(t *testing.T) {
	require.Zero(t, Spread([]float64{2}))
	require.Zero(t, Spread([]float64{2, 2, 2, 9}))
	require.InDelta(t, 1.4826*0.1, Spread([]float64{1, 1.1, 0.9, 1, 5}), 1e-9)
	sizes := [][2]float64{{1e4, 0}, {1e5, 0}, {1e6, 0}, {1e7, 0}}
	quiet, err := Fit(measured(Line{PerByte: 1e-9}, 0.01, 9, sizes...))
	require.NoError(t, err)
	noisy, err := Fit(measured(Line{PerByte: 1e-9}, 0.3, 9, sizes...))
	require.NoError(t, err)
	require.Less(t, quiet.Error, 0.03)
	require.Greater(t, noisy.Error, 0.1)
	require.Less(t, noisy.Error, 0.6)

	// Every estimate has at least the spread of whole steps.
	m := Model{Ops: map[string]Line{"mul": {PerByte: 1, Points: 9, Sizes: 9, Error: 0.03}}, Spread: 0.04}
	e, err := Expect([]Trace{{mul(1)}}, []Model{m}, nil)
	require.NoError(t, err)
	require.InDelta(t, 0.05, e.Error, 1e-9)
}
