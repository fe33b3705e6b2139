package parallel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel"
)

func lengths(ranges []parallel.Range) []int {
	n := make([]int, len(ranges))
	for i, r := range ranges {
		n[i] = r.Len()
	}
	return n
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		experts int
		shares  []float64
		want    []int
	}{
		{256, []float64{1}, []int{256}},
		{256, []float64{1, 1}, []int{128, 128}},
		{256, []float64{1, 1, 1}, []int{86, 85, 85}},
		{256, []float64{7, 7, 7, 7, 7}, []int{52, 51, 51, 51, 51}},
		{256, []float64{1, 1, 1, 1, 1, 1}, []int{43, 43, 43, 43, 42, 42}},
		{256, []float64{1, 1, 1, 1, 1, 1, 1}, []int{37, 37, 37, 37, 36, 36, 36}},
		{256, []float64{2, 1, 1}, []int{128, 64, 64}},
		{256, []float64{192e9, 64e9}, []int{192, 64}},
		{10, []float64{1, 2}, []int{3, 7}},                            // 3.3 and 6.7
		{16, []float64{1, 1, 1e-9}, []int{8, 8, 0}},                   // far below one expert
		{3, []float64{1, 1, 1, 1}, []int{1, 1, 1, 0}},                 // more ranks than experts
		{5, []float64{math.MaxFloat64, math.MaxFloat64}, []int{3, 2}}, // the sum must not overflow
		{7, []float64{0.1, 0.2, 0.4}, []int{1, 2, 4}},
	} {
		got, err := parallel.Divide(c.experts, c.shares)
		require.NoError(t, err)
		require.Equal(t, c.want, lengths(got), "%d by %v", c.experts, c.shares)
	}
	for _, bad := range [][]float64{nil, {}, {1, 0}, {-1}, {math.NaN(), 1}, {math.Inf(1), 1}} {
		_, err := parallel.Divide(8, bad)
		require.Error(t, err, "%v", bad)
	}
	_, err := parallel.Divide(0, []float64{1})
	require.Error(t, err)
	_, err = parallel.Divide(8, []float64{1, 0})
	require.ErrorContains(t, err, "rank 1 is 0")
}

// TestDivideIsFair: whatever the shares, the ranges cover all experts in order
// and each differs from its quota by less than one expert.
func TestDivideIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		experts, shares, sum := 1+r.IntN(400), make([]float64, 1+r.IntN(8)), 0.0
		for i := range shares {
			shares[i] = math.Exp(4 * r.NormFloat64())
			sum += shares[i]
		}
		ranges, err := parallel.Divide(experts, shares)
		require.NoError(t, err)
		at := 0
		for i, x := range ranges {
			require.Equal(t, at, x.Start)
			at = x.End
			require.Less(t, math.Abs(float64(x.Len())-float64(experts)*shares[i]/sum), 1.0)
		}
		require.Equal(t, experts, at)
	}
}
