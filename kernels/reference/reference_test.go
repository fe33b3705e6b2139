package reference

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// The values here are worked out by hand from the formulas of the contract.

func f32Weight(rows, cols int, values ...float32) kernels.Weight {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return kernels.Weight{Name: "w", Type: gguf.F32, Cols: cols, Rows: rows, Slices: 1, SliceBytes: len(data), Data: data}
}

func halvesOf(x ...float32) []uint16 {
	h := make([]uint16, len(x))
	for i, v := range x {
		h[i] = float16.Fromfloat32(v).Bits()
	}
	return h
}

func TestMatMulByHand(t *testing.T) {
	out := make([]float32, 4)
	New().MatMul([]float32{1, 2, 3, 4}, 2, kernels.Product{W: f32Weight(2, 2, 10, 1, 0, -1), Out: out})
	require.Equal(t, []float32{12, -2, 34, -4}, out)
	out = make([]float32, 2, 4)
	New().MatMulGrouped(out, []float32{1, 2, 3, 4}, 1, f32Weight(2, 2, 1, 1, 2, 2).RowGroups(2))
	require.Equal(t, []float32{3, 14}, out)
	New().MatMulGrouped(out[:4:4], []float32{1, 2}, 1, f32Weight(2, 2, 1, 3, 2, 5).ColumnGroups(2))
	require.Equal(t, []float32{1, 2, 6, 10}, out[:4])
}

func TestHadamardOfAUnitVector(t *testing.T) {
	x := make([]float32, 128)
	x[0] = 1
	New().Hadamard(x, 1, 128)
	for _, v := range x {
		require.Equal(t, float32(0.08838834764831845), v)
	}
}

// TestSinkhornOrientation: one column pass of a matrix with different rows. Row 0
// softmaxes to (3/4, 1/4), row 1 to (1/2, 1/2); columns divide by 5/4 and 3/4.
func TestSinkhornOrientation(t *testing.T) {
	a := kernels.HCMixArgs{
		H: make([]float32, 4), Fn: f32Weight(8, 4, make([]float32, 32)...),
		Base: []float32{0, 0, 0, 0, float32(math.Log(3)), 0, 0, 0}, Scale: []float32{1, 1, 1},
		Pre: make([]float32, 2), Post: make([]float32, 2), Comb: make([]float32, 4),
		Weights: []float32{1, 0}, Norm: []float32{1, 1}, X: make([]float32, 2),
		Rows: 1, Streams: 2, Cols: 2, Iterations: 1, RMSEps: 1e-6,
	}
	New().HCMix(a)
	require.InDeltaSlice(t, []float32{0.6, 1. / 3, 0.4, 2. / 3}, a.Comb, 1e-6)
	require.InDeltaSlice(t, []float32{0.5, 0.5}, a.Pre, 1e-7)
	require.InDeltaSlice(t, []float32{1, 1}, a.Post, 1e-7)

	// the destination is the column: h'[1] takes comb[0][1] of stream 0
	h := []float32{1, 0, 0, 1}
	New().HCExpand(h, []float32{0, 0}, []float32{0, 0}, []float32{0, 1, 0, 0}, 1, 2, 2)
	require.Equal(t, []float32{0, 0, 1, 0}, h)
}

func TestAttendByHand(t *testing.T) {
	a := kernels.AttendArgs{
		Q: []float32{1, 0}, Raw: halvesOf(0, 4, 0, 8, 9, 9), Compressed: halvesOf(float32(math.Log(2)), 16),
		Sinks: []float32{0}, Out: make([]float32, 2),
		Rows: 1, Pos: 1, Heads: 1, HeadDim: 2, ValueDim: 2, Window: 2, RingRows: 3, Ratio: 2, Scale: 1,
	}
	New().Attend(a)
	// weights 1, 1, 2 (nearly: ln 2 is rounded to float16) and the sink's 1
	l := float64(float16.Fromfloat32(float32(math.Log(2))).Float32())
	w := math.Exp(l)
	require.InDelta(t, (4+8+16*w)/(3+w), a.Out[1], 1e-6)
	require.InDelta(t, l*w/(3+w), a.Out[0], 1e-6)
	a.Pos = 0 // sees itself and no entry
	New().Attend(a)
	require.InDelta(t, 2, a.Out[1], 1e-6)
}

// TestCompressByHand: the second block of an overlapping compressor takes the
// first lane of the previous block and the second lane of its own.
func TestCompressByHand(t *testing.T) {
	a := kernels.CompressArgs{
		KV: []float32{1, 10, 2, 20, 3, 30, 4, 40}, Score: make([]float32, 8),
		APE: f32Weight(2, 2, 0, 0, 0, 0), Norm: []float32{1},
		RingKV: make([]float32, 14), RingScore: make([]float32, 14), Cache: make([]uint16, 2),
		Rows: 4, Ratio: 2, Dim: 1, RingRows: 7, Overlap: true, Eps: 100,
	}
	New().Compress(a)
	norm := func(p float64) float64 { return p / math.Sqrt(p*p+100) }
	require.InDelta(t, norm(15), float16.Frombits(a.Cache[0]).Float32(), 1e-3)
	require.InDelta(t, norm((1.+2+30+40)/4), float16.Frombits(a.Cache[1]).Float32(), 1e-3)
}

func TestIndexTopKTies(t *testing.T) {
	a := kernels.IndexArgs{
		Q: []float32{1, 1}, HeadWeight: []float32{1, 1}, Cache: halvesOf(1, 3, 3, 2, 3),
		Selected: make([]int32, 4), Rows: 2, Pos: 3, Heads: 1, Dim: 1, TopK: 2, Ratio: 1, Scale: 1,
	}
	New().IndexTopK(a)
	require.Equal(t, []int32{1, 2, 1, 2}, a.Selected)
	a.TopK, a.Rows, a.Pos = 4, 1, 1
	New().IndexTopK(a)
	require.Equal(t, []int32{0, 1, -1, -1}, a.Selected)
}

func TestRouteByHand(t *testing.T) {
	a := kernels.RouteArgs{
		Logits: []float32{0, 0, 50, -50}, Bias: []float32{0, 0, -100, 0},
		IDs: make([]int32, 2), Weights: make([]float32, 2), Rows: 1, Experts: 4, Used: 2, Normalise: true, Scale: 1.5,
	}
	New().Route(a)
	require.Equal(t, []int32{0, 1}, a.IDs)
	require.InDeltaSlice(t, []float32{0.75, 0.75}, a.Weights, 1e-6)
	a.Table, a.Tokens, a.Normalise, a.Scale = []int32{0, 1, 2, 3}, []int32{1}, false, 1
	New().Route(a)
	require.Equal(t, []int32{2, 3}, a.IDs)
	require.InDeltaSlice(t, []float32{float32(math.Sqrt(50)), float32(math.Exp(-25))}, a.Weights, 1e-6)
}

func TestSwiGLUClamp(t *testing.T) {
	out := make([]float32, 2)
	New().MatMul([]float32{1}, 1, kernels.Product{W: f32Weight(2, 1, 20, 20), Out: out, Up: f32Weight(2, 1, -20, 20), UpOut: make([]float32, 2), Clamp: 10})
	want := 10 / (1 + math.Exp(-10)) * 10
	require.InDeltaSlice(t, []float32{float32(-want), float32(want)}, out, 1e-5)
}

func TestExperts(t *testing.T) {
	// two experts; slot 1 has no weight, slot 2 is not in the groups
	w := f32Weight(1, 1, 2, 3)
	w.Slices, w.SliceBytes = 2, 4
	groups := kernels.ExpertGroups{Offsets: make([]int32, 3), Slots: make([]int32, 4)}
	b := New()
	b.ExpertCompact(groups, []int32{0, 0, 1, 0}, 2, 2, 2, 0, 1)
	require.Equal(t, []int32{0, 3, 3}, groups.Offsets)
	require.Equal(t, []int32{0, 1, 3}, groups.Slots[:3])
	args := kernels.ExpertArgs{Groups: groups, Weights: []float32{0.5, 0, 0, 1}, Rows: 2, Used: 2, Experts: 2, End: 2}
	mid := []float32{7, 7, 7, 7}
	b.ExpertGateUp(mid, []float32{1, 10}, w, w, 0, args)
	silu2, silu20 := 2/(1+math.Exp(-2)), 20/(1+math.Exp(-20))
	require.InDeltaSlice(t, []float32{float32(silu2), 0, 7, float32(silu20 * 20)}, mid, 1e-4)
	out := []float32{7, 7, 7, 7}
	b.ExpertDown(out, []float32{1, 2, 3, 4}, w, args)
	require.Equal(t, []float32{2, 0, 0, 8}, out)
	require.NoError(t, b.Flush())
}

func TestMisuseIsNamed(t *testing.T) {
	defer func() {
		m, ok := recover().(*kernels.Misuse)
		require.True(t, ok)
		require.Equal(t, "Add: out has 1 elements, needs 2", m.Error())
	}()
	New().Add(make([]float32, 1), make([]float32, 2), make([]float32, 2), 2)
}
