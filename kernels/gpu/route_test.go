//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
)

func TestRoute(t *testing.T) { kerneltest.Run(t, open, "Route", "ExpertMask", "ExpertCompact") }

// TestRouteTable: a table in several views gives each token its row; a token that
// is no row, and an expert that does not exist, fail Flush and leave a choice that
// exists.
func TestRouteTable(t *testing.T) {
	const vocabulary, used, experts = 3000, 3, 11
	mem, free := kerneltest.Pages(t, vocabulary*used*4)
	defer free()
	table := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(mem))), vocabulary*used)
	for i := range table {
		table[i] = int32((i/used*5 + i%used) % experts)
	}
	const broken = 7 // a row of it
	table[broken*used+1] = experts
	t.Setenv("MTLSIM_MAX_BUFFER", "45056") // three views
	for _, c := range []struct {
		tokens []int32
		fails  bool
	}{
		{[]int32{0, 2999, 1500, 1, 999, 1000, 2000, 2001}, false},
		{[]int32{4, -1}, true},
		{[]int32{4, vocabulary}, true},
		{[]int32{4, broken}, true},
	} {
		b := open(t)
		require.NoError(t, b.Map(mem))
		rows := len(c.tokens)
		ids, weights := kerneltest.OnDevice(t, b, slices.Repeat([]int32{-1}, rows*used)), kerneltest.OnDevice(t, b, slices.Repeat([]float32{-1}, rows*used))
		b.Route(kernels.RouteArgs{
			Logits: kerneltest.OnDevice(t, b, make([]float32, rows*experts)), Table: table, Tokens: kerneltest.OnDevice(t, b, c.tokens), IDs: ids, Weights: weights,
			Rows: rows, Experts: experts, Used: used, Normalise: true, Scale: 3,
		})
		if err := b.Flush(); c.fails {
			require.ErrorContains(t, err, "row index")
		} else {
			require.NoError(t, err)
		}
		for i, tok := range c.tokens {
			got, weighs := ids[i*used:][:used], weights[i*used:][:used]
			if tok >= 0 && tok < vocabulary && tok != broken {
				require.Equal(t, table[tok*used:][:used], got)
				for _, w := range weighs {
					require.InDelta(t, 1, w, 1e-6)
				}
				continue
			}
			for k := range used {
				require.True(t, got[k] >= 0 && got[k] < experts)
				require.Zero(t, weighs[k])
			}
		}
		require.NoError(t, b.Close())
	}
}
