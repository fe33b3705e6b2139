// Package reference computes every op of package kernels in plain Go: slowly, on one
// thread, in float64 between float32 or float16 inputs and outputs, with weights as they
// are and activations never quantised. The tests of the other backends compare with it.
package reference

import (
	"fmt"
	"math"

	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Backend computes immediately, in the calling goroutine, in memory of Go's heap. It
// implements kernels.Backend.
type Backend struct {
	allocs contract.Allocations[struct{}]
	err    error // first failure
}

var _ kernels.Backend = (*Backend)(nil)

// New returns a backend with no memory allocated.
func New() *Backend { return &Backend{} }

// Name is "reference".
func (b *Backend) Name() string { return "reference" }

// Alloc returns n zeroed bytes of Go's heap, aligned to 64.
func (b *Backend) Alloc(n int) ([]byte, error) {
	return b.allocs.Alloc("reference", n, func() (mem []byte, none struct{}, err error) {
		return kernels.AlignedBytes(n), none, nil
	})
}

// Free forgets mem, which must be what Alloc returned.
func (b *Backend) Free(mem []byte) {
	b.allocs.Free(mem, func(contract.Allocation[struct{}]) {})
}

// Map does nothing, because Go reads any memory.
func (b *Backend) Map([]byte) error { return nil }

// CanCompute reports whether the type can be converted to float32.
func (b *Backend) CanCompute(t gguf.Type) bool {
	return t.Weights()
}

// Submit does nothing, because ops run immediately.
func (b *Backend) Submit() {}

// Flush reports the first failure; the ops have already run.
func (b *Backend) Flush() error { return b.err }

// Close frees everything.
func (b *Backend) Close() error {
	b.allocs.All = nil
	return nil
}

func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// row is row r of matrix slice of w converted to float32, which is exact for
// every type. A failure is reported by the next Flush.
func (b *Backend) row(w kernels.Weight, slice, r int) []float32 {
	out := make([]float32, w.Cols)
	n := w.RowBytes()
	at := slice*w.SliceBytes + r*w.Stride()
	if err := gguf.Dequantize(out, w.Type, w.Data[at:at+n]); err != nil {
		b.fail(fmt.Errorf("weight %q, matrix %d, row %d: %w", w.Name, slice, r, err))
	}
	return out
}

// rows is all of a matrix, one slice per row.
func (b *Backend) rows(w kernels.Weight, slice int) [][]float32 {
	all := make([][]float32, w.Rows)
	for r := range all {
		all[r] = b.row(w, slice, r)
	}
	return all
}

// dot is the sum of a[i]*b[i] in float64, in order.
func dot(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// sumSquares is the sum of x[i]² in float64.
func sumSquares(x []float32) float64 { return dot(x, x) }

func half(x float64) uint16 { return float16.Fromfloat32(float32(x)).Bits() }

// halves converts float16 values to float32.
func halves(h []uint16) []float32 {
	out := make([]float32, len(h))
	for i, v := range h {
		out[i] = float16.Frombits(v).Float32()
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func silu(x float64) float64 { return x * sigmoid(x) }

// softplus is log(1+exp(x)) without overflow or loss of precision.
func softplus(x float64) float64 {
	return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
}
