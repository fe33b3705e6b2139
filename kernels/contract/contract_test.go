package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/kernels/kerneltest"
)

// TestRing: rows that wrap around the end of a ring are two spans, and a call
// that completes an entry writes it alone.
func TestRing(t *testing.T) {
	a := kernels.CompressArgs{
		KV: make([]float32, 24), Score: make([]float32, 24), Norm: make([]float32, 4),
		APE:    kernels.Weight{Type: gguf.F32, Cols: 8, Rows: 2, Slices: 1, Data: make([]byte, 64)},
		RingKV: make([]float32, 56), RingScore: make([]float32, 60), Cache: make([]uint16, 32),
		Rows: 3, Pos: 12, Ratio: 2, Dim: 4, RingRows: 7, Overlap: true,
	}
	c := contract.Compress(&a)
	for _, name := range []string{"RingKV", "RingScore"} {
		o := c.Operand(name)
		require.Equal(t, contract.Updates, o.Access)
		require.Equal(t, contract.Span{End: 56}, o.Extent)
		require.Equal(t, [2]contract.Span{{Begin: 40, End: 56}, {End: 8}}, o.Written) // slots 5, 6 and 0
		require.Equal(t, 3*8+4*4, o.Moved)                                            // rows written, candidates of an entry read
	}
	require.Equal(t, contract.Span{Begin: 24, End: 28}, c.Operand("Cache").Extent) // entry 6
	require.Equal(t, 4*(24+24+4+2*40)+2*4, c.Bytes())

	a.Rows, a.Cache = 1, nil // completes none
	c = contract.Compress(&a)
	require.Equal(t, contract.Span{}, c.Operand("Cache").Extent)
}

// TestSelectedRows: of rows that indices select no more count as moved than are
// selected.
func TestSelectedRows(t *testing.T) {
	a := kernels.AttendArgs{
		Q: make([]float32, 8), Raw: make([]uint16, 40), Compressed: make([]uint16, 80), Selected: make([]int32, 3),
		Sinks: make([]float32, 2), Out: make([]float32, 8),
		Rows: 1, Pos: 47, Heads: 2, HeadDim: 4, ValueDim: 4, Window: 10, RingRows: 10, Ratio: 4, TopK: 3,
	}
	c := contract.Attend(&a)
	require.Equal(t, contract.Span{End: 48}, c.Operand("Compressed").Extent)
	require.Equal(t, 3*4, c.Operand("Compressed").Moved)
	require.Equal(t, 10*4, c.Operand("Raw").Moved)
	a.Selected = nil
	c = contract.Attend(&a)
	require.Equal(t, 12*4, c.Operand("Compressed").Moved)
	require.Zero(t, c.Operand("Selected").Extent)
}

// TestOverlap: an output shares no memory with another operand, unless the op
// says that it may be that slice.
func TestOverlap(t *testing.T) {
	x, y := make([]float32, 16), make([]float32, 16)
	contract.Add(x, x, y, 16)
	contract.Add(x, y, x, 16)
	contract.Add(x, x, x, 16)
	contract.Add(x[8:], x, y, 8)
	require.Equal(t, "out overlaps a", kerneltest.RequireMisuse(t, "Add", "", func() { contract.Add(x[7:], x, y, 8) }).Msg)
	ids := make([]int32, 8)
	a := kernels.RouteArgs{Logits: x, IDs: ids, Weights: x[7:], Rows: 2, Experts: 4, Used: 2}
	require.Equal(t, "Weights overlaps Logits", kerneltest.RequireMisuse(t, "Route", "", func() { contract.Route(&a) }).Msg)
	a.Weights = x[8:]
	contract.Route(&a)
}

// TestNoAllocation: a check in front of every op of a step must cost nothing.
func TestNoAllocation(t *testing.T) {
	x, y := make([]float32, 64), make([]float32, 64)
	w := kernels.Weight{Type: gguf.F32, Cols: 8, Rows: 2, Slices: 1, Data: make([]byte, 64)}
	products := []kernels.Product{{W: w, Out: y}}
	mix := kernels.RoPEArgs{X: x, Pos: make([]int32, 2), Freqs: y, Rows: 2, Heads: 1, HeadDim: 8, RotDim: 4}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		contract.MatMul(x, 2, products...)
		contract.RMSNorm(x, x, nil, 2, 8)
		c := contract.RoPE(&mix)
		_ = c.Operand("X").Extent
	}))
}

func TestValues(t *testing.T) {
	contract.Rows("Gather", []int32{0, 2}, 3)
	kerneltest.RequireMisuse(t, "Gather", "a row beyond", func() { contract.Rows("Gather", []int32{0, 3}, 3) })
	a := kernels.ExpertArgs{
		Groups: kernels.ExpertGroups{Offsets: []int32{0, 1, 2}, Slots: []int32{1, 0}}, Rows: 1, Used: 2, Experts: 2,
	}
	contract.Groups("ExpertDown", &a)
	a.Groups.Slots[1] = 2
	require.Equal(t, "Groups.Slots[1] is 2 of 2", kerneltest.RequireMisuse(t, "ExpertDown", "", func() { contract.Groups("ExpertDown", &a) }).Msg)
	a.Groups.Offsets[1] = 3
	require.Equal(t, "Groups.Offsets descend at expert 1", kerneltest.RequireMisuse(t, "ExpertDown", "", func() { contract.Groups("ExpertDown", &a) }).Msg)
}
