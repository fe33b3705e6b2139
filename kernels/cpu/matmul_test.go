//go:build cgo

package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// columns are row lengths for a type: one block, an odd number, a few.
func columns(typ gguf.Type) []int {
	switch typ.BlockElements() {
	case 1:
		return []int{1, 15, 40, 528}
	case 32:
		return []int{32, 288, 736}
	}
	return []int{256, 768}
}

// shapes are numbers of weight rows and of tokens: below, at and above the
// block sizes of the kernels (4, 16, 64 rows; 1, 2, 4, 8, 16 tokens).
var shapes = []struct{ rows, tokens int }{{1, 1}, {5, 2}, {16, 3}, {17, 9}, {67, 1}, {131, 5}, {50, 4}, {64, 8}, {40, 7}, {33, 16}, {80, 43}}

// check compares out [tokens][rows] with the float64 products of w and x. With
// a as the largest magnitude of its group, an activation may be off by a/32512
// when quantised to 15 bits; the sums themselves are float32.
func check(t *testing.T, typ gguf.Type, out, w, x []float32, rows, cols, tokens int, exact bool) {
	t.Helper()
	for n := range tokens {
		row := x[n*cols : (n+1)*cols]
		step := make([]float64, cols)
		if !exact && !dense(typ) {
			for g := 0; g < cols; g += 32 {
				largest := 0.0
				for _, v := range row[g : g+32] {
					largest = max(largest, math.Abs(float64(v)))
				}
				for i := range 32 {
					step[g+i] = largest / 32512 * 1.001
				}
			}
		}
		for r := range rows {
			var want, slack, size float64
			for i, v := range row {
				weight := float64(w[r*cols+i])
				want += weight * float64(v)
				slack += math.Abs(weight) * step[i]
				size += math.Abs(weight * float64(v))
			}
			got := float64(out[n*rows+r])
			// The minima of a type are subtracted after the sum: the terms are
			// several times the size of the elements, hence the factor.
			if math.IsNaN(got) || math.Abs(got-want) > slack+8e-6*size+1e-30 {
				t.Fatalf("%s cols %d token %d of %d row %d of %d: got %g, want %g (slack %g, size %g)",
					typ, cols, n, tokens, r, rows, got, want, slack, size)
			}
		}
	}
}

func TestMatMulAgainstFloat64(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 2, level)
		r := rand.New(rand.NewPCG(1, 2))
		for _, typ := range kerneltest.Types {
			require.True(t, b.CanCompute(typ), typ)
			for _, cols := range columns(typ) {
				for _, s := range shapes {
					data := kerneltest.Blocks(r, typ, s.rows*cols, 0.1)
					w := values(t, typ, data, s.rows, cols)
					x := kerneltest.Normal(r, s.tokens*cols, 1)
					out := multiply(t, b, weight(t, b, typ, data, 1, s.rows, cols), kerneltest.OnDevice(t, b, x), s.tokens)
					check(t, typ, out, w, x, s.rows, cols, s.tokens, false)
				}
			}
		}
		require.False(t, b.CanCompute(gguf.I32))
		require.False(t, b.CanCompute(gguf.Type(4)))
		require.False(t, b.CanCompute(gguf.Type(1<<31+5)))
	})
}

// Activations that the quantised form holds exactly leave only float32
// rounding.
func TestMatMulExactActivations(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 2, level)
		r := rand.New(rand.NewPCG(3, 4))
		for _, typ := range kerneltest.Types {
			cols := 768 / typ.BlockElements() * typ.BlockElements()
			const rows, tokens = 19, 3
			x := make([]float32, tokens*cols)
			for g := 0; g < len(x); g += 32 {
				scale := math.Ldexp(1, r.IntN(9)-6)
				for i := range 32 {
					x[g+i] = float32(float64(r.IntN(255)-127) * scale)
				}
				x[g+r.IntN(32)] = float32(127 * scale * float64(1-2*r.IntN(2)))
			}
			data := kerneltest.Blocks(r, typ, rows*cols, 0.1)
			w := values(t, typ, data, rows, cols)
			out := multiply(t, b, weight(t, b, typ, data, 1, rows, cols), kerneltest.OnDevice(t, b, x), tokens)
			check(t, typ, out, w, x, rows, cols, tokens, true)
		}
	})
}

// Extremes: zero activations, all bits of the quants set or clear, activations
// at the ends of their range.
func TestMatMulExtremes(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 1, level)
		r := rand.New(rand.NewPCG(5, 6))
		for _, typ := range kerneltest.Types {
			if typ.BlockElements() == 1 {
				continue
			}
			const rows, cols = 18, 512
			for _, fill := range []byte{0x00, 0xff, 0x80, 0x7f} {
				random := kerneltest.Blocks(r, typ, rows*cols, 0.1)
				data := make([]byte, len(random))
				size := typ.BlockBytes()
				for i := range data {
					data[i] = fill
				}
				for at := 0; at < len(data); at += size {
					for _, f := range typ.HalfScales() {
						copy(data[at+f:at+f+2], random[at+f:at+f+2])
					}
					switch typ {
					case gguf.MXFP4:
						data[at] = random[at]
					case gguf.NVFP4:
						copy(data[at:at+4], random[at:at+4])
					case gguf.IQ1M:
						copy(data[at+48:at+56], random[at+48:at+56])
					}
				}
				w := values(t, typ, data, rows, cols)
				mw := weight(t, b, typ, data, 1, rows, cols)
				for _, tokens := range []int{1, 4, 17} {
					x := make([]float32, tokens*cols)
					for _, v := range multiply(t, b, mw, kerneltest.OnDevice(t, b, x), tokens) {
						require.Zero(t, v, typ)
					}
					for i := range x { // all products have one sign: the largest integer sums
						x[i] = 1
						if w[i%cols] < 0 {
							x[i] = -1
						}
					}
					out := multiply(t, b, mw, kerneltest.OnDevice(t, b, x), tokens)
					check(t, typ, out, w, x, rows, cols, tokens, true)
				}
			}
		}
	})
}

// A row's result has the same bits whatever is computed with it: other rows and
// tokens, threads, and, for quantised types and the SIMD levels, the level.
func TestMatMulBitEquality(t *testing.T) {
	for _, typ := range kerneltest.Types {
		t.Run(typ.String(), func(t *testing.T) {
			for i, cols := range columns(typ) {
				testBitEquality(t, typ, cols, 77, []int{21, 9, 3}[i%3])
			}
			testBitEquality(t, typ, 1024, 77, 20)
			if typ.BlockElements() == 1 { // the last part of the columns ends within a vector
				testBitEquality(t, typ, 1037, 29, 37)
			}
		})
	}
}

func testBitEquality(t *testing.T, typ gguf.Type, cols, rows, tokens int) {
	r := rand.New(rand.NewPCG(7, 8))
	data, x := kerneltest.Blocks(r, typ, rows*cols, 0.1), kerneltest.Normal(r, tokens*cols, 1)
	var portable, simd []uint32
	for _, level := range cpu.Levels() {
		var first []uint32
		for _, threads := range []int{1, 2, 3, 8} {
			b, err := cpu.NewLevel(threads, level)
			require.NoError(t, err)
			w, bx := weight(t, b, typ, data, 1, rows, cols), kerneltest.OnDevice(t, b, x)
			got := kerneltest.Bits(multiply(t, b, w, bx, tokens))
			if first == nil {
				first = got
			}
			require.Equal(t, first, got, "%s %s %d threads", typ, level, threads)
			for n := range tokens { // one at a time
				alone := kerneltest.Bits(multiply(t, b, w, bx[n*cols:], 1))
				require.Equal(t, first[n*rows:(n+1)*rows], alone, "%s %s token %d alone", typ, level, n)
			}
			half := tokens / 2
			split := append(kerneltest.Bits(multiply(t, b, w, bx, half)), kerneltest.Bits(multiply(t, b, w, bx[half*cols:], tokens-half))...)
			require.Equal(t, first, split, "%s %s in two calls", typ, level)
			part := w // rows 13..
			part.Rows, part.Data = rows-13, w.Data[13*typ.RowBytes(cols):]
			for n, v := range kerneltest.Bits(multiply(t, b, part, bx, tokens)) {
				require.Equal(t, first[n/part.Rows*rows+13+n%part.Rows], v, "%s %s row split", typ, level)
			}
			require.NoError(t, b.Close())
		}
		switch {
		case level == cpu.Portable:
			portable = first
		case simd == nil:
			simd = first
		default:
			require.Equal(t, simd, first, "%s: levels differ", typ)
		}
		if level != cpu.Portable && (!dense(typ) || level == cpu.NEON) { // for those, portable fuses too
			require.Equal(t, portable, first, "%s: portable and %s differ", typ, level)
		}
	}
}

// Each number of tokens from 1 to 17, and one beyond what any kernel takes at once, may
// have a kernel of its own, and rows left over another: all give the bits of the portable
// level, for any number of threads, and where rows do not follow each other.
func TestMatMulFewTokens(t *testing.T) {
	const rows, cols, most = 43, 512, 53
	for _, typ := range kerneltest.Types {
		if dense(typ) {
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(17, 18))
			data, x := kerneltest.Blocks(r, typ, rows*2*cols, 0.1), kerneltest.Normal(r, most*cols, 1)
			half := func(b *cpu.Backend) kernels.Weight { // the right half of the columns
				w := weight(t, b, typ, data, 1, rows, 2*cols)
				return w.ColumnRange(cols, 2*cols)
			}
			b, err := cpu.NewLevel(1, cpu.Portable)
			require.NoError(t, err)
			want := kerneltest.Bits(multiply(t, b, half(b), kerneltest.OnDevice(t, b, x), most))
			require.NoError(t, b.Close())
			for _, level := range cpu.Levels()[1:] {
				for _, threads := range []int{1, 3} {
					b, err := cpu.NewLevel(threads, level)
					require.NoError(t, err)
					w, bx := half(b), kerneltest.OnDevice(t, b, x)
					for tokens := 1; tokens <= most; tokens++ {
						if tokens > 17 && tokens < most {
							continue
						}
						got := kerneltest.Bits(multiply(t, b, w, bx[:tokens*cols], tokens))
						require.Equal(t, want[:tokens*rows], got, "%s %s: %d tokens, %d threads", typ, level, tokens, threads)
					}
					require.NoError(t, b.Close())
				}
			}
		})
	}
}

// A value that is not finite shows in every result that depends on it.
func TestMatMulNotFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 2, level)
		r := rand.New(rand.NewPCG(9, 9))
		for _, typ := range []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q4_K, gguf.Q6_K, gguf.IQ2XXS} {
			w := weight(t, b, typ, kerneltest.Blocks(r, typ, 20*256, 0.1), 1, 20, 256)
			for _, bad := range []float64{math.NaN(), math.Inf(1)} {
				x := kerneltest.Normal(r, 3*256, 1)
				x[256+77] = float32(bad)
				for i, v := range multiply(t, b, w, kerneltest.OnDevice(t, b, x), 3) {
					finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
					require.Equal(t, i/20 != 1, finite, "%s %d: %g", typ, i, v)
				}
			}
		}
	})
}

func TestMatMulSeveralProducts(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 3, level)
		r := rand.New(rand.NewPCG(11, 12))
		const cols = 512
		for _, tokens := range []int{1, 6} {
			x := kerneltest.OnDevice(t, b, kerneltest.Normal(r, tokens*cols, 1))
			var products []kernels.Product
			var want [][]uint32
			for i, typ := range kerneltest.Types[:20] { // more than one round of the C side
				rows := 3 + 19*i
				w := weight(t, b, typ, kerneltest.Blocks(r, typ, rows*cols, 0.1), 1, rows, cols)
				want = append(want, kerneltest.Bits(multiply(t, b, w, x, tokens)))
				products = append(products, kernels.Product{W: w, Out: zeros(t, b, tokens*rows)})
			}
			b.MatMul(x, tokens, products...)
			require.NoError(t, b.Flush())
			for i, p := range products {
				require.Equal(t, want[i], kerneltest.Bits(p.Out), p.W.Name)
			}
		}
	})
}

func TestMatMulGrouped(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 2, level)
		r := rand.New(rand.NewPCG(13, 14))
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_K} {
			for _, groups := range []int{1, 4, 20} {
				for _, tokens := range []int{1, 5} {
					const n, cols = 21, 256
					data := kerneltest.Blocks(r, typ, groups*n*cols, 0.1)
					w := weight(t, b, typ, data, 1, groups*n, cols)
					x := kerneltest.Normal(r, tokens*groups*cols, 1)
					out := zeros(t, b, tokens*groups*n)
					b.MatMulGrouped(out, kerneltest.OnDevice(t, b, x), tokens, w.RowGroups(groups))
					require.NoError(t, b.Flush())
					for g := range groups {
						part := w
						part.Rows, part.Data = n, w.Data[g*n*typ.RowBytes(cols):]
						var gx []float32
						for m := range tokens {
							gx = append(gx, x[(m*groups+g)*cols:(m*groups+g+1)*cols]...)
						}
						want := multiply(t, b, part, kerneltest.OnDevice(t, b, gx), tokens)
						for m := range tokens {
							got := out[m*groups*n+g*n : m*groups*n+(g+1)*n]
							require.Equal(t, kerneltest.Bits(want[m*n:(m+1)*n]), kerneltest.Bits(got), "%s group %d", typ, g)
						}
					}
				}
			}
		}
	})
}

// Embed gives exactly the values of gguf.Dequantize.
func TestEmbed(t *testing.T) {
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		b := openLevel(t, 2, level)
		r := rand.New(rand.NewPCG(15, 16))
		for _, typ := range kerneltest.Types {
			const rows, cols = 40, 768
			data := kerneltest.Blocks(r, typ, rows*cols, 0.1)
			want := values(t, typ, data, rows, cols)
			ids := make([]int32, 33)
			for i := range ids {
				ids[i] = int32(r.IntN(rows))
			}
			out := zeros(t, b, len(ids)*cols)
			b.Embed(out, weight(t, b, typ, data, 1, rows, cols), kerneltest.OnDevice(t, b, ids))
			require.NoError(t, b.Flush())
			for i, id := range ids {
				require.Equal(t, kerneltest.Bits(want[int(id)*cols:][:cols]), kerneltest.Bits(out[i*cols:][:cols]), typ)
			}
		}
	})
}

func TestTablesAreCurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables.h")
	out, err := exec.Command("go", "run", "./gentables", path).CombinedOutput()
	require.NoError(t, err, string(out))
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	have, err := os.ReadFile("tables.h")
	require.NoError(t, err)
	require.True(t, string(want) == string(have), "tables.h is old: run go generate ./kernels/cpu")
}

func benchTypes() []gguf.Type {
	return []gguf.Type{
		gguf.Q8_0, gguf.Q4_K, gguf.Q2_K, gguf.IQ2XXS, gguf.MXFP4, gguf.NVFP4, gguf.F16, gguf.F32, gguf.BF16,
		gguf.Q6_K, gguf.Q5_K, gguf.Q3_K, gguf.Q4_0, gguf.IQ4XS, gguf.IQ3S,
	}
}

func benchmark(b *testing.B, rows, cols, tokens int, types []gguf.Type) {
	for _, typ := range types {
		for _, level := range cpu.Levels()[1:] {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d", typ, level, threads), func(b *testing.B) {
					be := openLevel(b, threads, level)
					r := rand.New(rand.NewPCG(1, 1))
					w := weight(b, be, typ, kerneltest.Blocks(r, typ, rows*cols, 0.1), 1, rows, cols)
					x, out := kerneltest.OnDevice(b, be, kerneltest.Normal(r, tokens*cols, 1)), zeros(b, be, tokens*rows)
					be.MatMul(x, tokens, kernels.Product{W: w, Out: out}) // touch all pages
					before := cpuSeconds(b)
					b.ResetTimer()
					for range b.N {
						be.MatMul(x, tokens, kernels.Product{W: w, Out: out})
					}
					seconds, used := b.Elapsed().Seconds()/float64(b.N), (cpuSeconds(b)-before)/float64(b.N)
					gigabytes, gigaops := float64(len(w.Data))/1e9, 2*float64(rows*cols*tokens)/1e9
					b.ReportMetric(gigabytes/seconds, "GB/s")
					b.ReportMetric(gigaops/seconds, "Gop/s")
					b.ReportMetric(gigabytes/used, "GB/cpu-s")
					b.ReportMetric(gigaops/used, "Gop/cpu-s")
				})
			}
		}
	}
}

// cpuSeconds is the processor time of the process so far: on a host that is
// busy with other work it says more than wall time.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkMatVec is the GEMV of a decode step: a matrix larger than the caches
// of a core, one row of activations.
func BenchmarkMatVec(b *testing.B) { benchmark(b, 8192, 4096, 1, benchTypes()) }

// BenchmarkMatMul is the GEMM of a prefill; BenchmarkMatMulFew has as many rows
// as one expert gets of it.
func BenchmarkMatMul(b *testing.B)    { benchmark(b, 2048, 4096, 256, benchTypes()[:7]) }
func BenchmarkMatMulFew(b *testing.B) { benchmark(b, 2048, 4096, 12, benchTypes()[:7]) }

// BenchmarkLimits prints from how many tokens which kernel is the fastest, as the tables of
// choice.c have it. It takes some minutes.
func BenchmarkLimits(b *testing.B) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("NOT CHECKED: no gcc here")
	}
	program := compile(b, cc, "testdata/limits.c", "-O3")
	for range b.N {
		limits := exec.Command(program)
		limits.Stdout, limits.Stderr = os.Stdout, os.Stderr // b.Log truncates
		require.NoError(b, limits.Run())
	}
}
