package deferred_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

func alloc[T float32 | int32 | int64 | uint16](t *testing.T, b kernels.Backend, values ...T) []T {
	x, err := kernels.Make[T](b, len(values))
	require.NoError(t, err)
	copy(x, values)
	return x
}

// TestResults: lazily computed results are those of the inner backend.
func TestResults(t *testing.T) {
	kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend { return deferred.Wrap(inner) })
}

// TestRings: all cases of the ops that write or read parts of their operands.
func TestRings(t *testing.T) {
	kerneltest.Run(t, func(testing.TB) kernels.Backend { return deferred.Wrap(reference.New()) }, "StoreKV", "Gather", "CopyColumns")
}

func TestOutputsArePoisonUntilFlush(t *testing.T) {
	b := deferred.Wrap(reference.New())
	x, y := alloc[float32](t, b, 1, 2, 3, 4), alloc[float32](t, b, 10, 20, 30, 40)
	b.Add(x, x, y, 2) // in place
	b.Add(y, x, x, 4) // reads what has not run
	require.True(t, math.IsNaN(float64(x[0])) && math.IsNaN(float64(x[1])))
	require.Equal(t, []float32{3, 4}, x[2:]) // not touched
	require.True(t, math.IsNaN(float64(y[3])))

	ring := alloc[uint16](t, b, 7, 7, 7, 7, 7, 7)
	one := alloc[float32](t, b, 1, 1, 1, 1)
	b.StoreKV(ring, one, 2, 2, 5, 3) // slots 2 and 0
	require.Equal(t, []uint16{0x7fff, 0x7fff, 7, 7, 0x7fff, 0x7fff}, ring)

	ids := alloc[int32](t, b, 9, 9)
	weights := alloc[float32](t, b, 0, 0)
	b.Route(kernels.RouteArgs{Logits: one, IDs: ids, Weights: weights, Rows: 1, Experts: 4, Used: 2, Scale: 1})
	require.Equal(t, []int32{deferred.PoisonInt32, deferred.PoisonInt32}, ids)

	require.NoError(t, b.Flush())
	require.Equal(t, []float32{11, 22, 3, 4}, x)
	require.Equal(t, []float32{22, 44, 6, 8}, y)
	require.Equal(t, []uint16{0x3c00, 0x3c00, 7, 7, 0x3c00, 0x3c00}, ring)
	require.Equal(t, []int32{0, 1}, ids)

	x[0] = 5 // the host owns it again
	b.Add(y, x, x, 1)
	require.NoError(t, b.Flush())
	require.Equal(t, []float32{10, 44, 6, 8}, y)
	require.NoError(t, b.Close())
}

func TestTheHostMustNotWriteBeforeFlush(t *testing.T) {
	for name, write := range map[string]func(x, y []float32){
		"an input":                    func(x, _ []float32) { x[1] = 8 },
		"an output":                   func(_, y []float32) { y[0] = 8 },
		"an input, then another read": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := deferred.Wrap(reference.New())
			x, y := alloc[float32](t, b, 1, 2, 3), alloc[float32](t, b, 0, 0, 0)
			b.Add(y, x, x, 2)
			x[2] = 9 // beyond what the op reads
			if write != nil {
				write(x, y)
			} else {
				x[0] = 8
				b.Add(y, x, x, 2)
				x[0] = 1 // too late
			}
			require.ErrorContains(t, b.Flush(), "the host wrote")
			require.Error(t, b.Flush(), "a failed backend stays failed")
		})
	}
	b := deferred.Wrap(reference.New())
	x, y := alloc[float32](t, b, 1, 2, 3), alloc[float32](t, b, 0, 0, 0)
	b.Add(y, x, x, 2)
	x[2] = 9
	require.NoError(t, b.Flush())
}

func TestMisuse(t *testing.T) {
	b := deferred.Wrap(reference.New())
	x := alloc[float32](t, b, 1, 2)
	for name, call := range map[string]func(){
		"memory of another":      func() { b.Add(x, make([]float32, 2), x, 2) },
		"free before flush":      func() { b.Clear(x, 1); kernels.Release(b, x) },
		"checked when encoded":   func() { b.Add(x, x, x, 3) },
		"free of another's":      func() { b.Free(make([]byte, 8)) },
		"a slice beyond its own": func() { b.Clear(x[:1:1], 2) },
	} {
		require.Panics(t, call, name)
	}
	require.NoError(t, b.Flush())
	kernels.Release(b, x)
}
