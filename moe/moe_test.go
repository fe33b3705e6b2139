package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/kerneltest"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// bench is a layer of random experts with its inputs.
type bench struct {
	shape  moe.Shape
	layer  moe.Layer
	x      []float32 // [MaxTokens][D]
	tokens []int32   // [MaxTokens]
}

const vocabulary = 11

func openCPU(t *testing.T, threads int) kernels.Backend {
	b, err := cpu.New(threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// newBench draws a layer whose weights are F32; hashed layers take their
// experts from a table by token id.
func newBench(t *testing.T, b kernels.Backend, seed uint64, hashed bool) *bench {
	// The weights are in a mapping, like those of a file; here the mapping is
	// memory of another backend.
	file := openCPU(t, 1)
	mapping := func(n int) []byte {
		mem, err := file.Alloc(n)
		require.NoError(t, err)
		require.NoError(t, b.Map(mem))
		return mem
	}
	r := rand.New(rand.NewPCG(seed, 1))
	s := moe.Shape{Embd: 24, FF: 12, Experts: 9, Used: 3, MaxTokens: 7}
	floats := func(n int, scale float64) []float32 {
		return kerneltest.OnDevice(t, b, kerneltest.Normal(r, n, scale))
	}
	weight := func(rows, cols, slices int) kernels.Weight {
		mem := mapping(4 * rows * cols * slices)
		require.NoError(t, gguftest.Quantize(mem, gguf.F32, floats(rows*cols*slices, 1/math.Sqrt(float64(cols)))))
		return kernels.Weight{Name: "w", Type: gguf.F32, Cols: cols, Rows: rows, Slices: slices, SliceBytes: 4 * rows * cols, Data: mem}
	}
	v := &bench{shape: s, x: floats(s.MaxTokens*s.Embd, 1)}
	v.layer = moe.Layer{
		Router: weight(s.Experts, s.Embd, 1), Gate: weight(s.FF, s.Embd, s.Experts), Up: weight(s.FF, s.Embd, s.Experts),
		Down: weight(s.Embd, s.FF, s.Experts), Clamp: 0.7, Norm: true, Scale: 1.5,
	}
	v.tokens = kerneltest.OnDevice(t, b, make([]int32, s.MaxTokens))
	for i := range v.tokens {
		v.tokens[i] = r.Int32N(vocabulary)
	}
	if hashed {
		mem := mapping(4 * vocabulary * s.Used)
		table := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(mem))), vocabulary*s.Used)
		for i := range vocabulary {
			for j, e := range r.Perm(s.Experts)[:s.Used] {
				table[i*s.Used+j] = int32(e)
			}
		}
		v.layer.Table = table
	} else {
		v.layer.Bias = floats(s.Experts, 0.3)
	}
	const sharedFF = 20
	v.layer.SharedGate, v.layer.SharedUp = weight(sharedFF, s.Embd, 1), weight(sharedFF, s.Embd, 1)
	v.layer.SharedDown, v.layer.SharedClamp = weight(s.Embd, sharedFF, 1), 0.5
	return v
}

// share gives the layer its shared expert, which newBench leaves out of the shape.
func (v *bench) share() { v.shape.SharedFF, v.shape.Segments = v.layer.SharedGate.Rows, 5 }

// row returns row i of matrix e of an F32 weight.
func row(w kernels.Weight, e, i int) []float32 {
	out := make([]float32, w.Cols)
	at := e*w.SliceBytes + i*w.RowBytes()
	if err := gguf.Dequantize(out, gguf.F32, w.Data[at:at+w.RowBytes()]); err != nil {
		panic(err)
	}
	return out
}

func dot(a []float32, b []float64) float64 {
	sum := 0.0
	for i := range b {
		sum += float64(a[i]) * b[i]
	}
	return sum
}

// plain computes the routed output in float64, for the experts in owned only.
func (v *bench) plain(owned parallel.Range, half bool) []float64 {
	s, l := v.shape, v.layer
	out := make([]float64, s.MaxTokens*s.Embd)
	for t := range s.MaxTokens {
		x := make([]float64, s.Embd)
		for i := range x {
			x[i] = float64(v.x[t*s.Embd+i])
		}
		score := make([]float64, s.Experts)
		for e := range score {
			score[e] = math.Sqrt(math.Log1p(math.Exp(dot(row(l.Router, 0, e), x))))
		}
		chosen := make([]int, s.Used)
		taken := map[int]bool{}
		for k := range chosen {
			best := -1
			for e := range score {
				if !taken[e] && l.Bias != nil && (best < 0 || score[e]+float64(l.Bias[e]) > score[best]+float64(l.Bias[best])) {
					best = e
				}
			}
			if l.Table != nil {
				best = int(l.Table[int(v.tokens[t])*s.Used+k])
			}
			chosen[k], taken[best] = best, true
		}
		total := 0.0
		for _, e := range chosen {
			total += score[e]
		}
		for _, e := range chosen {
			if e < owned.Start || e >= owned.End {
				continue
			}
			mid := make([]float64, s.FF)
			for i := range mid {
				g := math.Min(dot(row(l.Gate, e, i), x), float64(l.Clamp))
				u := math.Max(-float64(l.Clamp), math.Min(dot(row(l.Up, e, i), x), float64(l.Clamp)))
				mid[i] = score[e] / total * float64(l.Scale) * g / (1 + math.Exp(-g)) * u
			}
			for i := range s.Embd {
				y := dot(row(l.Down, e, i), mid)
				if half {
					y = float64(float16.Fromfloat32(float32(y)).Float32())
				}
				out[t*s.Embd+i] += y
			}
		}
	}
	return out
}

func run(t *testing.T, b kernels.Backend, v *bench, owned parallel.Range, reduce parallel.Reduce) []float32 {
	f, err := moe.NewForward(b, v.shape, reduce, parallel.NewMeter(nil))
	require.NoError(t, err)
	defer f.Free()
	f.Own(owned)
	f.Poison()
	out := kerneltest.OnDevice(t, b, make([]float32, v.shape.MaxTokens*v.shape.Embd))
	require.NoError(t, f.Begin(t.Context(), 0, &v.layer, v.x, v.tokens, v.shape.MaxTokens, nil))
	require.NoError(t, f.Finish(t.Context(), out))
	require.NoError(t, b.Flush())
	return out
}

func requireNear(t *testing.T, want []float64, got []float32, tolerance float64) {
	for i := range want {
		require.InDelta(t, want[i], float64(got[i]), tolerance, "element %d", i)
	}
}

// TestForward: whole layers and subsets of the experts, on a backend that runs
// at once and on a deferred one.
func TestForward(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		for _, b := range []kernels.Backend{openCPU(t, 2), deferred.Wrap(openCPU(t, 1))} {
			v := newBench(t, b, 5, hashed)
			for _, owned := range []parallel.Range{{Start: 0, End: 9}, {Start: 0, End: 4}, {Start: 4, End: 9}, {Start: 3, End: 3}, {Start: 8, End: 9}} {
				requireNear(t, v.plain(owned, false), run(t, b, v, owned, parallel.Sum), 2e-6)
				// A value close to the midpoint between two float16 values may
				// round the other way: half a unit of float16 at 1 for each of
				// the three slots.
				requireNear(t, v.plain(owned, true), run(t, b, v, owned, parallel.Exact), 2e-3)
			}
		}
	}
}

// TestPartsAddUp: the parts of several owners sum to the whole.
func TestPartsAddUp(t *testing.T) {
	b := openCPU(t, 2)
	v := newBench(t, b, 6, false)
	whole := run(t, b, v, parallel.Range{Start: 0, End: 9}, parallel.Sum)
	sum := make([]float64, len(whole))
	for _, owned := range []parallel.Range{{Start: 0, End: 3}, {Start: 3, End: 4}, {Start: 4, End: 9}} {
		for i, y := range run(t, b, v, owned, parallel.Sum) {
			sum[i] += float64(y)
		}
	}
	requireNear(t, sum, whole, 1e-6)
}

func TestParseReduce(t *testing.T) {
	for _, r := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		got, err := parallel.ParseReduce(r.String())
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	_, err := parallel.ParseReduce("most")
	require.ErrorContains(t, err, `"most"`)
}

func TestScratchBytes(t *testing.T) {
	s := moe.Shape{Embd: 10, FF: 3, Experts: 5, Used: 2, MaxTokens: 4}
	// logits 4*5, ids and weights and slots 8 each, offsets 6, mid 8*3, outs 8*10
	require.Equal(t, int64(4*(20+24+6+24+80)), moe.ScratchBytes(s, parallel.Sum))
	// the parts in float32 and float16; with exact the message of each rank: the
	// layouts of 4 blocks, the sums, and room for a block
	bytes := func(how parallel.Reduce, wire parallel.Wire, divided bool) int64 {
		place := parallel.ByExperts
		if divided {
			place = parallel.Everything
		}
		p, err := place(parallel.Sizes{Experts: s.Experts, Shared: s.Segments}, []float64{1, 1})
		require.NoError(t, err)
		return moe.ExchangeBytes(s, how, wire, p)
	}
	require.Equal(t, int64(6*4*10), bytes(parallel.Sum, parallel.F16, false))
	require.Equal(t, int64(4*4*10), bytes(parallel.Sum, parallel.F32, false))
	require.Equal(t, int64(2*4*(1+40+64)), bytes(parallel.Exact, parallel.F16, false))
	// gate and up 4*6 each, the sum 4*10; with exact the outputs of 3 segments
	s.SharedFF, s.Segments = 6, 3
	require.Equal(t, int64(4*(20+24+6+24+80+2*24+40)), moe.ScratchBytes(s, parallel.Sum))
	require.Equal(t, int64(4*(20+24+6+24+80+2*24+120)+8*40), moe.ScratchBytes(s, parallel.Exact))
	require.Equal(t, int64(6*4*10), bytes(parallel.Sum, parallel.F16, true))
	require.Equal(t, int64(2*4*(1+40+64)), bytes(parallel.Exact, parallel.F16, false))
	require.Equal(t, int64(2*4*(1+40+64)), bytes(parallel.Exact, parallel.F16, true))
}
