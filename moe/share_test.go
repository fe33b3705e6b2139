package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/kernels/cpu"
	"ringmaster/moe"
)

func lengths(ranges []moe.Range) []int {
	n := make([]int, len(ranges))
	for i, r := range ranges {
		n[i] = r.Len()
	}
	return n
}

func TestShare(t *testing.T) {
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
		got, err := moe.Share(c.experts, c.shares)
		require.NoError(t, err)
		require.Equal(t, c.want, lengths(got), "%d by %v", c.experts, c.shares)
	}
	for _, bad := range [][]float64{nil, {}, {1, 0}, {-1}, {math.NaN(), 1}, {math.Inf(1), 1}} {
		_, err := moe.Share(8, bad)
		require.Error(t, err, "%v", bad)
	}
	_, err := moe.Share(0, []float64{1})
	require.Error(t, err)
	_, err = moe.Share(8, []float64{1, 0})
	require.ErrorContains(t, err, "rank 1 is 0")
}

// TestShareIsFair: whatever the shares, the ranges cover all experts in order
// and each differs from its quota by less than one expert.
func TestShareIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		experts, shares, sum := 1+r.IntN(400), make([]float64, 1+r.IntN(8)), 0.0
		for i := range shares {
			shares[i] = math.Exp(4 * r.NormFloat64())
			sum += shares[i]
		}
		ranges, err := moe.Share(experts, shares)
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

func TestJoinErrors(t *testing.T) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	f, err := moe.NewForward(b, moe.Shape{Embd: 1, FF: 1, Experts: 9, Used: 1, MaxTokens: 1}, moe.Sum, nil)
	require.NoError(t, err)
	g := memory.Groups(2)[1]
	for want, ranges := range map[string][]moe.Range{
		"1 ranges of experts for 2 ranks":  {{0, 9}},
		"rank 1 gets experts 5 to 9":       {{0, 4}, {5, 9}},
		"rank 1 gets experts 4 to 3":       {{0, 4}, {4, 3}},
		"rank 0 gets experts -1 to 4":      {{-1, 4}, {4, 9}},
		"the ranges end at expert 8 of 9":  {{0, 4}, {4, 8}},
		"the ranges end at expert 10 of 9": {{0, 4}, {4, 10}},
	} {
		err := f.Join(g, ranges, moe.F16)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
	require.NoError(t, f.Join(g, []moe.Range{{0, 9}, {9, 9}}, moe.F16))
	require.NoError(t, f.Join(nil, nil, moe.F16))
	require.NoError(t, f.Join(memory.Groups(1)[0], []moe.Range{{0, 9}}, moe.F16))
}
