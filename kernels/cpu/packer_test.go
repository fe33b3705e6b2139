//go:build cgo

package cpu_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// packed packs x [rows][cols] and returns the packed rows, and these unpacked.
func packed(t testing.TB, b *cpu.Backend, x []float32, rows, cols int) ([]byte, []float32) {
	t.Helper()
	mem, err := b.Alloc(rows * kernels.PackedBytes(cols))
	require.NoError(t, err)
	defer b.Free(mem)
	b.PackRows(mem, x, rows, cols)
	out := make([]float32, rows*cols)
	b.UnpackRows(out, mem, rows, cols)
	return bytes.Clone(mem), out
}

// TestPackedScales: whatever the largest value of a group is, packing what was unpacked
// gives the same bytes: in the middle of the range every significand (with
// -exhaustive, else some thousand), and some thousand at both ends of the range, where the scale is cut to zero and where
// the largest value of the unpacked group would overflow.
func TestPackedScales(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 1, level)
		r := rand.New(rand.NewPCG(81, 82))
		const rows, cols = 1 << 10, 256
		x := make([]float32, rows*cols)
		for _, exponent := range []uint32{0, 1, 16, 17, 127, 254} { // 17 is 2^-110
			step := uint32(997)
			if exponent == 127 && testenv.At(testenv.Exhaustive) {
				step = 1
			}
			next, last := exponent<<23, exponent<<23|(1<<23-1)
			next, last = next-min(next, 64), last+64 // all values near the ends
			for next <= last {
				for g := 0; g < len(x); g += 32 {
					largest := math.Float32frombits(min(next, last))
					for i := range 32 {
						x[g+i] = (2*r.Float32() - 1) * largest
					}
					x[g+int(next%32)] = largest
					if next%3 == 0 {
						x[g+int(next%32)] = -largest
					}
					if near := next - exponent<<23; near < 200 || near > 1<<23-200 {
						next++
					} else {
						next += step
					}
				}
				first, back := packed(t, b, x, rows, cols)
				second, again := packed(t, b, back, rows, cols)
				require.True(t, bytes.Equal(first, second), "exponent %d, before %x", exponent, next)
				require.True(t, slices.Equal(kerneltest.Bits(back), kerneltest.Bits(again)), "exponent %d, before %x", exponent, next)
			}
		}
	})
}

// TestPackedProducts: products with all types of quantised weights have the same bits of
// unpacked rows as of the rows themselves, with zeros of both signs, subnormal, tiny,
// huge and infinite values and NaNs among them, for one row and for many, on one thread
// and on two. Packs names no type with products in float32.
func TestPackedProducts(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	special := [][]float32{
		{}, {0, negative}, {math.SmallestNonzeroFloat32, -1e-40}, {0x1p-110}, {math.Nextafter32(0x1p-110, 0), 1e-35}, {math.MaxFloat32},
		{-math.MaxFloat32, 1}, {math.Nextafter32(math.MaxFloat32, 0)}, {float32(math.Inf(1))}, {float32(math.Inf(-1)), 2}, {float32(math.NaN()), 3}, {1e30, 1e-30},
	}
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		r := rand.New(rand.NewPCG(83, 84))
		for threads := 1; threads <= 2; threads++ {
			b := openLevel(t, threads, level)
			for _, typ := range kerneltest.Types {
				require.Equal(t, !dense(typ), b.Packs(typ), typ)
				if dense(typ) {
					continue
				}
				for _, cols := range columns(typ) {
					for _, tokens := range []int{1, 3, 20} {
						x := kerneltest.Normal(r, tokens*cols, 1)
						for g := 0; g < len(x); g += 32 {
							scale := float32(math.Ldexp(1, r.IntN(40)-20))
							for i := range 32 {
								x[g+i] *= scale
							}
							values := special[r.IntN(len(special))]
							if len(values) > 0 && r.IntN(2) == 0 { // a group of nothing else
								clear(x[g : g+32])
							}
							copy(x[g+r.IntN(31):g+32], values)
						}
						_, back := packed(t, b, x, tokens, cols)
						const rows = 17
						w := weight(t, b, typ, kerneltest.Blocks(r, typ, rows*cols, 0.1), 1, rows, cols)
						want := multiply(t, b, w, kerneltest.OnDevice(t, b, x), tokens)
						got := multiply(t, b, w, kerneltest.OnDevice(t, b, back), tokens)
						require.Equal(t, kerneltest.Bits(want), kerneltest.Bits(got), "%v, %d columns, %d tokens", typ, cols, tokens)
					}
				}
			}
		}
		require.False(t, openLevel(t, 1, level).Packs(gguf.I32))
	})
}

// TestPackedMisuse: what is no row of whole groups is refused by name.
func TestPackedMisuse(t *testing.T) {
	b := openLevel(t, 1, cpu.Portable)
	x, mem := zeros(t, b, 64), kernels.AlignedBytes(4+kernels.PackedBytes(64))
	for name, call := range map[string]func(){
		"columns":   func() { b.PackRows(mem, x, 1, 48) },
		"values":    func() { b.UnpackRows(x, mem, 2, 64) },
		"bytes":     func() { b.PackRows(mem[:135], x, 1, 64) },
		"alignment": func() { b.PackRows(mem[2:], x, 1, 64) },
	} {
		require.Panics(t, call, name)
	}
}
