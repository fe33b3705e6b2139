//go:build cgo

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// Widths of DeepSeek V4 Flash.
const (
	embd, streams  = 4096, 4
	heads, headDim = 64, 512
	rotDim         = 64
)

// bench is a backend with random inputs. RINGMASTER_THREADS sets its threads,
// RINGMASTER_LEVEL the name of its level.
type bench struct {
	*testing.B
	*cpu.Backend
	rng   *rand.Rand
	begun time.Duration // processor time when the loop began
}

func newBench(b *testing.B) *bench {
	threads, _ := strconv.Atoi(os.Getenv("RINGMASTER_THREADS"))
	levels := cpu.Levels()
	level := levels[len(levels)-1]
	if name := os.Getenv("RINGMASTER_LEVEL"); name != "" {
		at := slices.IndexFunc(levels, func(l cpu.Level) bool { return l.String() == name })
		require.GreaterOrEqual(b, at, 0, "this machine has no level %q", name)
		level = levels[at]
	}
	backend, err := cpu.NewLevel(threads, level)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, backend.Close()) })
	return &bench{B: b, Backend: backend, rng: rand.New(rand.NewPCG(1, 1))}
}

func (b *bench) f32(n int) []float32 {
	return kerneltest.OnDevice(b.B, b.Backend, kerneltest.Normal(b.rng, n, 1))
}

func (b *bench) f16(n int) []uint16 {
	x, err := kernels.Make[uint16](b.Backend, n)
	require.NoError(b, err)
	for i := range x {
		x[i] = float16.Fromfloat32(b.rng.Float32() - 0.5).Bits()
	}
	return x
}

func (b *bench) i32(n int) []int32 { return kerneltest.OnDevice(b.B, b.Backend, make([]int32, n)) }

// halfWeight is a float16 matrix in a mapping.
func (b *bench) halfWeight(rows, cols int) kernels.Weight {
	data, err := syscall.Mmap(-1, 0, rows*cols*2, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, syscall.Munmap(data)) })
	for i := 0; i < len(data); i += 2 {
		data[i], data[i+1] = byte(b.rng.UintN(256)), 0x20
	}
	require.NoError(b, b.Map(data))
	return kernels.Weight{Name: "fn", Type: gguf.F16, Cols: cols, Rows: rows, Slices: 1, SliceBytes: len(data), Data: data}
}

// processorTime is the processor time of all threads of this process.
func processorTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// begin is called before the loop.
func (b *bench) begin() { b.begun = processorTime(b) }

// rate reports work per second of processor time: on a busy host wall time says
// little. The loop has run b.N times.
func (b *bench) rate(perOp float64, unit string) {
	used := (processorTime(b) - b.begun).Seconds()
	if perOp > 0 {
		b.ReportMetric(perOp*float64(b.N)/used/1e9, unit+"/cpu-s")
	}
	b.ReportMetric(used*1e6/float64(b.N), "cpu-µs/op")
}

// BenchmarkSwitches computes ops of one token for as long as the benchmark runs, as decode
// does, and reports the context switches of all threads, Go's included.
func BenchmarkSwitches(t *testing.B) {
	b := newBench(t)
	w := b.halfWeight(2048, embd)
	x, out := b.f32(embd), b.f32(w.Rows)
	switches := func() int64 {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return u.Nvcsw + u.Nivcsw
	}
	before, start := switches(), time.Now()
	for t.Loop() {
		b.MatMul(x, 1, kernels.Product{W: w, Out: out})
	}
	t.ReportMetric(float64(switches()-before)/time.Since(start).Seconds(), "switches/s")
}

var benchRows = []int{1, 64}

func BenchmarkHCMix(t *testing.B) {
	for _, rows := range benchRows {
		t.Run(fmt.Sprint(rows), func(t *testing.B) {
			b := newBench(t)
			const s, mixes = streams, (2 + streams) * streams
			a := kernels.HCMixArgs{
				H: b.f32(rows * s * embd), Fn: b.halfWeight(mixes, s*embd), Base: b.f32(mixes), Scale: b.f32(3),
				Pre: b.f32(rows * s), Post: b.f32(rows * s), Comb: b.f32(rows * s * s),
				Weights: b.f32(rows * s), Norm: b.f32(embd), X: b.f32(rows * embd),
				Rows: rows, Streams: s, Cols: embd, Iterations: 20, Eps: 1e-6, RMSEps: 1e-6,
			}
			b.begin()
			for t.Loop() {
				b.HCMix(a)
			}
			b.rate(2*float64(rows*mixes*s*embd), "GFLOP")
		})
	}
}

func BenchmarkHCExpandCollapse(t *testing.B) {
	for _, rows := range benchRows {
		t.Run(fmt.Sprint(rows), func(t *testing.B) {
			b := newBench(t)
			h, y := b.f32(rows*streams*embd), b.f32(rows*embd)
			pre, post, comb := b.f32(rows*streams), b.f32(rows*streams), b.f32(rows*streams*streams)
			b.begin()
			for t.Loop() {
				b.HCCollapse(y, h, pre, rows, streams, embd)
				for i := range comb { // keep the numbers from growing
					comb[i] = 0.25
				}
				b.HCExpand(h, y, post, comb, rows, streams, embd)
			}
			b.rate(float64(rows*embd*4*(streams+1+2*streams+1)), "GB")
		})
	}
}

func BenchmarkAttend(t *testing.B) {
	for _, shape := range []struct {
		name              string
		rows, ratio, topK int
		pos               int
	}{
		{"window", 1, 0, 0, 16384}, {"indexed", 1, 4, 512, 16384}, {"ratio128", 1, 128, 0, 16384},
		{"indexed at 128 K", 1, 4, 512, 131072}, {"ratio128 at 128 K", 1, 128, 0, 131072},
		{"3 rows indexed", 3, 4, 512, 16384}, {"prefill indexed", 16, 4, 512, 16384},
	} {
		t.Run(shape.name, func(t *testing.B) {
			b := newBench(t)
			const window = 128
			pos := shape.pos
			rows, seen := shape.rows, window
			a := kernels.AttendArgs{
				Q: b.f32(rows * heads * headDim), Raw: b.f16((window + rows) * headDim), Sinks: b.f32(heads),
				Out: b.f32(rows * heads * headDim), Rows: rows, Pos: pos, Heads: heads, HeadDim: headDim, ValueDim: headDim, Window: window,
				RingRows: window + rows, Ratio: shape.ratio, TopK: shape.topK, Scale: 0.04419417,
			}
			if a.Ratio > 0 {
				a.Compressed = b.f16((pos + rows) / a.Ratio * headDim)
				seen += (pos + rows) / a.Ratio
			}
			if a.TopK > 0 {
				a.Selected = b.i32(rows * a.TopK)
				apart := pos / a.Ratio / a.TopK // the selected entries are spread over the whole context
				for i := range a.Selected {
					a.Selected[i] = int32(i%a.TopK*apart + i/a.TopK%apart)
				}
				seen = window + a.TopK
			}
			b.begin()
			for t.Loop() {
				b.Attend(a)
			}
			b.rate(4*float64(rows*seen*heads*headDim), "GFLOP")
		})
	}
}

// The attention of V3 over latent rows: 128 heads, rows of 576 numbers, 512 of them
// values too. Chosen positions are those of V3.2, spread over the whole context.
func BenchmarkAttendLatent(t *testing.B) {
	const heads, width, values = 128, 576, 512
	for _, shape := range []struct{ rows, depth, topK int }{
		{1, 128, 0}, {1, 1024, 0}, {1, 4096, 0}, {1, 32768, 0}, {1, 131072, 0},
		{1, 4096, 2048}, {1, 32768, 2048}, {1, 131072, 2048},
		{16, 4096, 0}, {16, 32768, 0}, {16, 4096, 2048}, {16, 32768, 2048},
	} {
		name := fmt.Sprintf("rows=%d/depth=%d", shape.rows, shape.depth)
		if shape.topK > 0 {
			name += fmt.Sprintf("/chosen=%d", shape.topK)
		}
		t.Run(name, func(t *testing.B) {
			b := newBench(t)
			rows, seen := shape.rows, shape.depth
			a := kernels.AttendArgs{
				Q: b.f32(rows * heads * width), Out: b.f32(rows * heads * values),
				Rows: rows, Pos: shape.depth - rows, Heads: heads, HeadDim: width, ValueDim: values, Scale: 0.1352,
			}
			latent := b.f16(shape.depth * width)
			if shape.topK > 0 {
				seen = shape.topK
				a.Compressed, a.Ratio, a.TopK, a.Selected = latent, 1, seen, b.i32(rows*seen)
				for i := range a.Selected {
					a.Selected[i] = int32(i % seen * ((shape.depth - rows) / seen))
				}
			} else {
				a.Raw, a.RingRows = latent, shape.depth
			}
			b.begin()
			for t.Loop() {
				b.Attend(a)
			}
			b.rate(2*float64(rows*seen*heads*(width+values)), "GFLOP")
			t.ReportMetric(float64(seen*width*2)/1e6, "MB-read")
		})
	}
}

func BenchmarkIndexTopK(t *testing.B) {
	for _, shape := range [][2]int{{1, 4096}, {1, 32768}, {1, 262144}, {16, 4096}, {16, 32768}} {
		rows, entries := shape[0], shape[1]
		t.Run(fmt.Sprintf("%d rows %d entries", rows, entries), func(t *testing.B) {
			b := newBench(t)
			const dim = 128
			a := kernels.IndexArgs{
				Q: b.f32(rows * heads * dim), HeadWeight: b.f32(rows * heads), Cache: b.f16(entries * dim), Selected: b.i32(rows * 512),
				Rows: rows, Pos: entries*4 - rows, Heads: heads, Dim: dim, TopK: 512, Ratio: 4, Scale: 0.011,
			}
			b.begin()
			for t.Loop() {
				b.IndexTopK(a)
			}
			b.rate(2*float64(rows*entries*heads*dim), "GFLOP")
		})
	}
}

func BenchmarkCompress(t *testing.B) {
	for _, ratio := range []int{4, 128} {
		t.Run(fmt.Sprint(ratio), func(t *testing.B) {
			b := newBench(t)
			const rows = 128
			width, ring := headDim, rows+ratio
			if ratio == 4 {
				width, ring = 2*headDim, rows+2*ratio
			}
			a := kernels.CompressArgs{
				KV: b.f32(rows * width), Score: b.f32(rows * width), APE: b.halfWeight(ratio, width), Norm: b.f32(headDim),
				Freqs: b.f32(rotDim / 2), RingKV: b.f32(ring * width), RingScore: b.f32(ring * width),
				Cache: b.f16((256 + rows) / ratio * headDim), Rows: rows, Pos: 256, Ratio: ratio, Dim: headDim, RotDim: rotDim,
				RingRows: ring, Overlap: ratio == 4, Eps: 1e-6,
			}
			b.begin()
			for t.Loop() {
				b.Compress(a)
			}
			b.rate(float64(4*rows*width*3), "GB")
		})
	}
}

func BenchmarkSmallOps(t *testing.B) {
	b := newBench(t)
	q, x := b.f32(heads*headDim), b.f32(embd)
	freqs, pos := b.f32(rotDim/2), b.i32(1)
	ring := b.f16(128 * headDim)
	slots, sums := b.f32(6*embd), make([]int64, embd)
	logits, bias, ids, weights := b.f32(256), b.f32(256), b.i32(6), b.f32(6)
	for _, op := range []struct {
		name string
		call func()
	}{
		{"RMSNorm heads", func() { b.RMSNorm(q, q, nil, heads, headDim, 1e-6) }},
		{"RMSNorm row", func() { b.RMSNorm(x, x, nil, 1, embd, 1e-6) }},
		{"RoPE", func() {
			b.RoPE(kernels.RoPEArgs{X: q, Pos: pos, Freqs: freqs, Rows: 1, Heads: heads, HeadDim: headDim, RotDim: rotDim})
		}},
		{"Hadamard", func() { b.Hadamard(q, heads, 128) }},
		{"StoreKV", func() { b.StoreKV(ring, q, 1, headDim, 77, 128) }},
		{"SumSlots", func() { b.SumSlots(x, slots, 1, 6, embd) }},
		{"SumExact", func() { b.SumExact(sums, slots, 1, 6, embd, false) }},
		{"RoundSums", func() { b.RoundSums(x, sums, embd) }},
		{"Route", func() {
			b.Route(kernels.RouteArgs{
				Logits: logits, Bias: bias, IDs: ids, Weights: weights, Rows: 1, Experts: 256, Used: 6, Normalise: true, Scale: 1.5,
			})
		}},
	} {
		t.Run(op.name, func(t *testing.B) {
			one := bench{B: t}
			one.begin()
			for t.Loop() {
				op.call()
			}
			one.rate(0, "")
		})
	}
}
