//go:build cgo

package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// routing is a random choice of distinct experts for each token.
type routing struct {
	ids     []int32
	weights []float32
	args    kernels.ExpertArgs
}

// route draws a routing. Slots of experts outside [start, end) are left out
// of the groups, and every seventh slot has weight zero.
func route(t *testing.T, b *cpu.Backend, r *rand.Rand, rows, used, experts, start, end int) routing {
	ids, weights := make([]int32, rows*used), make([]float32, rows*used)
	by := make([][]int32, experts)
	for n := range rows {
		for i, e := range r.Perm(experts)[:used] {
			slot := n*used + i
			ids[slot] = int32(e)
			weights[slot] = float32(r.Float64() + 0.1)
			if slot%7 == 3 {
				weights[slot] = 0
			}
			if e >= start && e < end {
				by[e] = append(by[e], int32(slot))
			}
		}
	}
	offsets, slots := []int32{0}, []int32{}
	for _, list := range by {
		slots = append(slots, list...)
		offsets = append(offsets, int32(len(slots)))
	}
	full := make([]int32, rows*used)
	copy(full, slots)
	return routing{ids, weights, kernels.ExpertArgs{
		Groups:  kernels.ExpertGroups{Offsets: kerneltest.OnDevice(t, b, offsets), Slots: kerneltest.OnDevice(t, b, full)},
		Weights: kerneltest.OnDevice(t, b, weights), Rows: rows, Used: used, Experts: experts, End: experts,
	}}
}

// slice is matrix e of a stack.
func slice(w kernels.Weight, e int) kernels.Weight {
	w.Data = w.Data[e*w.SliceBytes:][:w.Rows*w.RowBytes()]
	w.Slices = 1
	return w
}

// Every slot's row is what MatMul gives for its expert and token, bit for bit.
func TestExperts(t *testing.T) {
	const sentinel = 12345
	types := []gguf.Type{gguf.Q4_K, gguf.Q2_K, gguf.IQ2XXS, gguf.MXFP4, gguf.Q8_0, gguf.F16, gguf.IQ3S}
	eachLevel(t, func(t *testing.T, level cpu.Level) {
		for _, typ := range types {
			before := map[cpu.Activations][]uint32{}
			for _, o := range []cpu.Options{{1, level, cpu.Bits15}, {3, level, cpu.Bits15}, {1, level, cpu.Bits8}, {3, level, cpu.Bits8}} {
				r := rand.New(rand.NewPCG(21, uint64(typ)))
				b, err := cpu.Open(o)
				require.NoError(t, err)
				t.Cleanup(func() { _ = b.Close() })
				const rows, used, experts, start, end, k, f, d = 61, 3, 10, 2, 9, 512, 256, 40
				a := route(t, b, r, rows, used, experts, start, end)
				// gate and up interleaved in one tensor
				size := f * typ.RowBytes(k)
				both := weight(t, b, typ, kerneltest.Blocks(r, typ, 2*experts*f*k, 0.1), experts, 2*f, k)
				gate, up := both, both
				gate.Rows, up.Rows = f, f
				up.Data = both.Data[size:]
				down := weight(t, b, typ, kerneltest.Blocks(r, typ, experts*d*f, 0.1), experts, d, f)
				for i := range down.Data[:2*down.SliceBytes] { // remote experts hold garbage
					both.Data[i], down.Data[i] = 0xff, 0xff
				}
				x := kerneltest.OnDevice(t, b, kerneltest.Normal(r, rows*k, 1))
				mid, out := zeros(t, b, rows*used*f), zeros(t, b, rows*used*d)
				for i := range mid {
					mid[i] = sentinel
				}
				for i := range out {
					out[i] = sentinel
				}
				const clamp = 0.75
				b.ExpertGateUp(mid, x, gate, up, clamp, a.args)
				require.NoError(t, b.Flush())
				for slot, id := range a.ids {
					row := mid[slot*f : (slot+1)*f]
					switch e := int(id); {
					case e < start || e >= end:
						for _, v := range row {
							require.EqualValues(t, sentinel, v, "slot %d is not in the groups", slot)
						}
						clear(row)
					case a.weights[slot] == 0:
						for _, v := range row {
							require.Zero(t, v, "slot %d has weight 0", slot)
						}
					default:
						token := x[slot/used*k:]
						g, u := multiply(t, b, slice(gate, e), token, 1), multiply(t, b, slice(up, e), token, 1)
						for i := range row {
							gv, uv := min(float64(g[i]), clamp), max(min(float64(u[i]), clamp), -clamp)
							want := float64(a.weights[slot]) * gv / (1 + math.Exp(-gv)) * uv
							require.InDelta(t, want, float64(row[i]), 1e-6*(1+math.Abs(want)), "%s slot %d", typ, slot)
						}
					}
				}
				b.ExpertDown(out, mid, down, a.args)
				require.NoError(t, b.Flush())
				for slot, id := range a.ids {
					row := out[slot*d : (slot+1)*d]
					if e := int(id); e < start || e >= end || a.weights[slot] == 0 {
						for _, v := range row {
							require.Zero(t, v, "slot %d", slot)
						}
					} else {
						require.Equal(t, kerneltest.Bits(multiply(t, b, slice(down, e), mid[slot*f:], 1)), kerneltest.Bits(row), "slot %d", slot)
					}
				}
				all := append(kerneltest.Bits(mid), kerneltest.Bits(out)...)
				if before[o.Activations] == nil {
					before[o.Activations] = all
				}
				require.Equal(t, before[o.Activations], all, "%s: threads change bits", typ)
			}
		}
	})
}

// A token's rows do not depend on the other tokens of the call, even with more
// slots than an item processes at once.
func TestExpertsRowsAlone(t *testing.T) {
	b := openLevel(t, 2, cpu.Levels()[len(cpu.Levels())-1])
	r := rand.New(rand.NewPCG(31, 32))
	const rows, used, experts, k, f, d = 300, 2, 2, 256, 256, 17
	a := route(t, b, r, rows, used, experts, 0, experts)
	gate := weight(t, b, gguf.Q4_K, kerneltest.Blocks(r, gguf.Q4_K, experts*f*k, 0.1), experts, f, k)
	up := weight(t, b, gguf.Q8_0, kerneltest.Blocks(r, gguf.Q8_0, experts*f*k, 0.1), experts, f, k)
	down := weight(t, b, gguf.Q2_K, kerneltest.Blocks(r, gguf.Q2_K, experts*d*f, 0.1), experts, d, f)
	x := kerneltest.OnDevice(t, b, kerneltest.Normal(r, rows*k, 1))
	mid, out := zeros(t, b, rows*used*f), zeros(t, b, rows*used*d)
	b.ExpertGateUp(mid, x, gate, up, 0, a.args)
	b.ExpertDown(out, mid, down, a.args)
	mid1, out1 := zeros(t, b, used*f), zeros(t, b, used*d)
	for n := 0; n < rows; n += 37 {
		one := kernels.ExpertArgs{
			Weights: kerneltest.OnDevice(t, b, a.weights[n*used:(n+1)*used]), Rows: 1, Used: used, Experts: experts, End: experts,
			Groups: kernels.ExpertGroups{Offsets: kerneltest.OnDevice(t, b, []int32{0, 1, 2}), Slots: kerneltest.OnDevice(t, b, []int32{0, 1})},
		}
		if a.ids[n*used] == 1 {
			one.Groups.Slots[0], one.Groups.Slots[1] = 1, 0
		}
		b.ExpertGateUp(mid1, x[n*k:], gate, up, 0, one)
		b.ExpertDown(out1, mid1, down, one)
		require.NoError(t, b.Flush())
		require.Equal(t, kerneltest.Bits(mid[n*used*f:(n+1)*used*f]), kerneltest.Bits(mid1), "token %d", n)
		require.Equal(t, kerneltest.Bits(out[n*used*d:(n+1)*used*d]), kerneltest.Bits(out1), "token %d", n)
	}
}

// The matrix of a late expert is beyond 2^31 bytes: the mapping is large, but
// only the pages of two experts are touched.
func TestExpertsBeyond2GiB(t *testing.T) {
	b := openLevel(t, 2, cpu.Levels()[len(cpu.Levels())-1])
	r := rand.New(rand.NewPCG(41, 42))
	const experts, k, f = 300, 256, 32
	const stride = 16 << 20
	data := kerneltest.Blocks(r, gguf.Q8_0, f*k, 0.1)
	mem, err := b.Alloc(experts * stride)
	require.NoError(t, err)
	const last = experts - 1
	require.Greater(t, last*stride, 1<<32)
	copy(mem[last*stride:], data)
	w := kernels.Weight{Name: "stack", Type: gguf.Q8_0, Cols: k, Rows: f, Slices: experts, SliceBytes: stride, Data: mem}
	offsets := make([]int32, experts+1)
	offsets[experts] = 1
	a := kernels.ExpertArgs{
		Groups:  kernels.ExpertGroups{Offsets: kerneltest.OnDevice(t, b, offsets), Slots: kerneltest.OnDevice(t, b, []int32{0})},
		Weights: kerneltest.OnDevice(t, b, []float32{1}), Rows: 1, Used: 1, Experts: experts, End: experts,
	}
	x, out := kerneltest.OnDevice(t, b, kerneltest.Normal(r, k, 1)), zeros(t, b, f)
	b.ExpertDown(out, x, w, a)
	require.NoError(t, b.Flush())
	require.Equal(t, kerneltest.Bits(multiply(t, b, slice(w, last), x, 1)), kerneltest.Bits(out))
}

func TestExpertMisuse(t *testing.T) {
	b := openLevel(t, 1, cpu.Portable)
	r := rand.New(rand.NewPCG(51, 52))
	w := weight(t, b, gguf.Q8_0, kerneltest.Blocks(r, gguf.Q8_0, 4*32*32, 0.1), 4, 32, 32)
	x, mid, out := zeros(t, b, 2*32), zeros(t, b, 4*32), zeros(t, b, 4*32)
	good := func() kernels.ExpertArgs {
		return kernels.ExpertArgs{
			Groups:  kernels.ExpertGroups{Offsets: kerneltest.OnDevice(t, b, []int32{0, 1, 2, 3, 4}), Slots: kerneltest.OnDevice(t, b, []int32{0, 1, 2, 3})},
			Weights: kerneltest.OnDevice(t, b, []float32{1, 1, 1, 1}), Rows: 2, Used: 2, Experts: 4, End: 4,
		}
	}
	require.NotPanics(t, func() { b.ExpertGateUp(mid, x, w, w, 0, good()) })
	require.NotPanics(t, func() { b.ExpertDown(out, mid, w, good()) })
	cases := map[string]func(a *kernels.ExpertArgs){
		"slot out of range": func(a *kernels.ExpertArgs) { a.Groups.Slots[2] = 4 },
		"slot negative":     func(a *kernels.ExpertArgs) { a.Groups.Slots[2] = -1 },
		"offsets descend":   func(a *kernels.ExpertArgs) { a.Groups.Offsets[2] = 0 },
		"offsets begin":     func(a *kernels.ExpertArgs) { a.Groups.Offsets[0] = 1 },
		"too many slots":    func(a *kernels.ExpertArgs) { a.Groups.Offsets[4] = 5 },
		"weights short":     func(a *kernels.ExpertArgs) { a.Weights = a.Weights[:3] },
		"range too long":    func(a *kernels.ExpertArgs) { a.End = 5 },
		"range backwards":   func(a *kernels.ExpertArgs) { a.Start, a.End = 3, 2 },
		"too many experts":  func(a *kernels.ExpertArgs) { a.Experts = 5 },
		"more rows than x":  func(a *kernels.ExpertArgs) { a.Rows = 3 },
	}
	for name, breakIt := range cases {
		a := good()
		breakIt(&a)
		kerneltest.RequireMisuse(t, "ExpertGateUp", name, func() { b.ExpertGateUp(mid, x, w, w, 0, a) })
		kerneltest.RequireMisuse(t, "ExpertDown", name, func() { b.ExpertDown(out, mid, w, a) })
	}
}
