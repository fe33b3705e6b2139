//go:build cgo

package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

func open8(t testing.TB, threads int, level cpu.Level) *cpu.Backend {
	t.Helper()
	b, err := cpu.Open(cpu.Options{Threads: threads, Level: level, Activations: cpu.Bits8})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestActivationsOf8Bits: products from 8-bit activations have the bits that 15-bit
// activations give for the same rows rounded to 8 bits, at every level and for every type
// and number of tokens, so every kernel that leaves out the lower bytes computes the same.
// The rounding itself is at most half a step of the largest value of a group over 127.
func TestActivationsOf8Bits(t *testing.T) {
	const rows, most = 43, 55
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		for _, threads := range []int{1, 3} {
			few, full := open8(t, threads, level), openLevel(t, threads, level)
			for _, typ := range kerneltest.Types {
				if dense(typ) {
					continue
				}
				for _, cols := range columns(typ) {
					r := rand.New(rand.NewPCG(91, uint64(cols)))
					x := kerneltest.Normal(r, most*cols, 1)
					_, rounded := packed(t, few, x, most, cols)
					for i := 0; i < len(x); i += 32 {
						largest := 0.0
						for _, v := range x[i : i+32] {
							largest = max(largest, math.Abs(float64(v)))
						}
						for j := i; j < i+32; j++ {
							require.InDelta(t, x[j], rounded[j], largest/127*0.5001)
						}
					}
					data := kerneltest.Blocks(r, typ, rows*cols, 0.1)
					w8, w15 := weight(t, few, typ, data, 1, rows, cols), weight(t, full, typ, data, 1, rows, cols)
					x8, x15 := kerneltest.OnDevice(t, few, x), kerneltest.OnDevice(t, full, rounded)
					for tokens := 1; tokens <= most; tokens++ {
						if tokens > 17 && tokens < most {
							continue
						}
						want := kerneltest.Bits(multiply(t, full, w15, x15[:tokens*cols], tokens))
						got := kerneltest.Bits(multiply(t, few, w8, x8[:tokens*cols], tokens))
						require.Equal(t, want, got, "%v, %d columns, %d tokens, %d threads", typ, cols, tokens, threads)
					}
				}
			}
		}
	})
}

// TestActivationsAreKnown: only 15 and 8 bits can be had, and the name tells which.
func TestActivationsAreKnown(t *testing.T) {
	_, err := cpu.Open(cpu.Options{Threads: 1, Level: cpu.Portable, Activations: 7})
	require.ErrorContains(t, err, "no such precision")
	for _, a := range []cpu.Activations{cpu.Bits15, cpu.Bits8} {
		parsed, err := cpu.ParseActivations(a.String())
		require.NoError(t, err)
		require.Equal(t, a, parsed)
	}
	_, err = cpu.ParseActivations("16")
	require.ErrorContains(t, err, "15 or 8 bits")
	require.Contains(t, open8(t, 1, cpu.Portable).Name(), "8-bit activations")
	b := openLevel(t, 1, cpu.Portable)
	require.NotContains(t, b.Name(), "bit")
	b.SetActivations(cpu.Bits8)
	require.Contains(t, b.Name(), "8-bit activations")
	b.SetActivations(cpu.Bits15)
	require.NotContains(t, b.Name(), "bit")
}
