//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

func TestAttend(t *testing.T) { kerneltest.Run(t, open, "Attend") }

// attention is an Attend over random rows in memory of b. Every third number of
// a selection is left out, and the numbers behind the first -1 are none.
func attention(t *testing.T, b kernels.Backend, a kernels.AttendArgs, size float64) kernels.AttendArgs {
	rng := rand.New(rand.NewPCG(11, uint64(a.Pos+a.HeadDim)))
	float16s := func(rows int) []uint16 {
		x, err := kernels.Make[uint16](b, rows*a.HeadDim)
		require.NoError(t, err)
		for i := range x {
			x[i] = float16.Fromfloat32(float32(rng.NormFloat64())).Bits()
		}
		return x
	}
	a.RingRows = a.Pos + a.Rows
	switch {
	case a.Window > 0:
		a.RingRows = a.Window - 1 + a.Rows
	case a.Ratio == 1: // the entries are the positions
		a.RingRows = 0
	}
	if a.ValueDim == 0 {
		a.ValueDim = a.HeadDim
	}
	a.Q = device(t, b, rng, a.Rows*a.Heads*a.HeadDim)
	if a.Window > 0 { // attention over all positions is tested without sinks
		a.Sinks = device(t, b, rng, a.Heads)
	}
	for i := range a.Q {
		a.Q[i] *= float32(size)
	}
	var err error
	if a.RingRows > 0 {
		a.Raw = float16s(a.RingRows)
	}
	a.Out, err = kernels.Make[float32](b, a.Rows*a.Heads*a.ValueDim)
	require.NoError(t, err)
	a.Scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	if a.Ratio > 0 {
		a.Compressed = float16s((a.Pos + a.Rows) / a.Ratio)
	}
	if a.TopK > 0 {
		a.Selected, err = kernels.Make[int32](b, a.Rows*a.TopK)
		require.NoError(t, err)
		for i := range a.Selected {
			a.Selected[i] = int32(i % a.TopK * 3 / 2)
			if left := a.TopK - i%a.TopK; left <= i/a.TopK {
				a.Selected[i] = -1
				if left < i/a.TopK {
					a.Selected[i] = 1 << 30
				}
			}
		}
	}
	return a
}

// TestAttendTiles is about what the tiles of matrices do otherwise than the
// kernel for any shape: heads that do not fill a threadgroup, tiles and parts
// that are not full or empty, scores that grow by much or little, sinks above
// everything.
func TestAttendTiles(t *testing.T) {
	for _, s := range []struct {
		kernels.AttendArgs
		size, sink float64 // of the queries, of the sinks
		tolerance  float64
	}{
		{AttendArgs: kernels.AttendArgs{Rows: 1, Pos: 0, Heads: 8, HeadDim: 64, Window: 128}},
		{AttendArgs: kernels.AttendArgs{Rows: 3, Pos: 14, Heads: 24, HeadDim: 64, Window: 16}},
		{AttendArgs: kernels.AttendArgs{Rows: 2, Pos: 700, Heads: 16, HeadDim: 256, Window: 128, Ratio: 4}},
		{AttendArgs: kernels.AttendArgs{Rows: 1, Pos: 1000, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4, TopK: 100}},
		{AttendArgs: kernels.AttendArgs{Rows: 7, Pos: 300, Heads: 8, HeadDim: 512, Window: 33, Ratio: 4, TopK: 40}},
		{AttendArgs: kernels.AttendArgs{Rows: 40, Pos: 60, Heads: 40, HeadDim: 64, Window: 30, Ratio: 8}},
		{AttendArgs: kernels.AttendArgs{Rows: 2, Pos: 400, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4}, size: 12, tolerance: 1e-4},
		{AttendArgs: kernels.AttendArgs{Rows: 20, Pos: 400, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4}, size: 3000, tolerance: 2e-2},
		{AttendArgs: kernels.AttendArgs{Rows: 2, Pos: 400, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4}, sink: 1000},
		{AttendArgs: kernels.AttendArgs{Rows: 2, Pos: 400, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4}, sink: -1000},
		{AttendArgs: kernels.AttendArgs{Rows: 20, Pos: 400, Heads: 8, HeadDim: 64, Window: 128, Ratio: 4}, sink: 5},
		{AttendArgs: kernels.AttendArgs{Rows: 1, Pos: 900, Heads: 16, HeadDim: 576, ValueDim: 512}},
		{AttendArgs: kernels.AttendArgs{Rows: 1, Pos: 0, Heads: 24, HeadDim: 576, ValueDim: 512}},
		{AttendArgs: kernels.AttendArgs{Rows: 130, Pos: 3, Heads: 8, HeadDim: 576, ValueDim: 512}},
		{AttendArgs: kernels.AttendArgs{Rows: 3, Pos: 70, Heads: 8, HeadDim: 256, ValueDim: 8}},
		{AttendArgs: kernels.AttendArgs{Rows: 2, Pos: 400, Heads: 8, HeadDim: 64, ValueDim: 48}, size: 3000, tolerance: 2e-2},
		{AttendArgs: kernels.AttendArgs{Rows: 1, Pos: 900, Heads: 16, HeadDim: 576, ValueDim: 512, Ratio: 1, TopK: 300}},
		{AttendArgs: kernels.AttendArgs{Rows: 20, Pos: 60, Heads: 8, HeadDim: 576, ValueDim: 512, Ratio: 1, TopK: 40}},
	} {
		t.Run(fmt.Sprintf("%d rows from %d, %d heads of %d, size %v, sink %v", s.Rows, s.Pos, s.Heads, s.HeadDim, s.size, s.sink), func(t *testing.T) {
			b := open(t)
			a := attention(t, b, s.AttendArgs, max(s.size, 1))
			if s.sink != 0 {
				for h := range a.Sinks {
					a.Sinks[h] = float32(s.sink)
				}
			}
			b.Attend(a)
			require.NoError(t, b.Flush())
			want := a
			want.Out = make([]float32, len(a.Out))
			reference.New().Attend(want)
			for i, v := range want.Out {
				require.InDelta(t, v, a.Out[i], max(s.tolerance, 1e-5), "element %d", i)
			}
			require.NoError(t, b.Close())
		})
	}
}

// TestAttendReportsNumbers: a number that is no entry is not looked up.
func TestAttendReportsNumbers(t *testing.T) {
	for _, heads := range []int{8, 3} {
		b := open(t)
		a := attention(t, b, kernels.AttendArgs{Rows: 1, Pos: 100, Heads: heads, HeadDim: 64, Window: 8, Ratio: 4, TopK: 5}, 1)
		a.Selected[3] = 26
		b.Attend(a)
		require.ErrorContains(t, b.Flush(), "row index")
		require.NoError(t, b.Close())
	}
}
