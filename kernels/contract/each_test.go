package contract

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
)

// TestMove: run gets the memory that an op was moved to; weights stay, and an operand
// that a method of Each does not pass on is seen.
func TestMove(t *testing.T) {
	there := map[unsafe.Pointer]unsafe.Pointer{}
	to := func(p unsafe.Pointer) unsafe.Pointer {
		if there[p] == nil {
			return p
		}
		return there[p]
	}
	at := func(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }
	out, x, y, moved := make([]float32, 4), make([]float32, 4), make([]float32, 4), make([]float32, 4)
	there[at(out)] = at(moved)

	o := &Op{Call: Add(out, x, y, 4), arguments: []any{&out, &x, &y}}
	o.Move(to)
	require.Equal(t, at(moved), at(out))
	require.Len(t, out, 4)

	o = &Op{Call: Add(out, x, y, 4), arguments: []any{&out, &x}}
	require.PanicsWithValue(t, "contract: Each.Add does not pass b to do", func() { o.Move(to) })

	// Of structs of arguments and products the slices move, and the data of weights does not.
	logits, ids, weights := make([]float32, 4), make([]int32, 1), make([]float32, 1)
	there[at(logits)] = at(moved)
	a := kernels.RouteArgs{Logits: logits, IDs: ids, Weights: weights, Rows: 1, Experts: 4, Used: 1, Scale: 1}
	o = &Op{Call: Route(&a), arguments: []any{&a}}
	o.Move(to)
	require.Equal(t, at(moved), at(a.Logits))
	p := kernels.Product{W: kernels.Weight{Data: make([]byte, 8)}, Out: logits}
	data := unsafe.SliceData(p.W.Data)
	o = &Op{Call: Call{Op: "MatMul"}, arguments: []any{&p}}
	o.Move(to)
	require.Equal(t, at(moved), at(p.Out))
	require.Equal(t, data, unsafe.SliceData(p.W.Data))
}
