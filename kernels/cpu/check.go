package cpu

import (
	"fmt"

	"ringmaster/kernels"
)

// ensure panics with a *kernels.Misuse of op unless ok.
func ensure(ok bool, op, format string, args ...any) {
	if !ok {
		panic(&kernels.Misuse{Op: op, Msg: fmt.Sprintf(format, args...)})
	}
}

// requireLen panics unless have, the length of the argument called name, is at
// least want.
func requireLen(op, name string, have, want int) {
	if have < want {
		ensure(false, op, "%s has %d elements, needs %d", name, have, want)
	}
}

// requireWeight checks that w is a matrix or stack of a known type whose data
// holds what its shape says.
func requireWeight(op string, w kernels.Weight) {
	ensure(w.Exists(), op, "weight %q does not exist", w.Name)
	ensure(w.Type.Known(), op, "weight %q has unknown %s", w.Name, w.Type)
	ensure(w.Cols > 0 && w.Rows > 0 && w.Slices > 0, op, "weight %q has shape [%d][%d][%d]", w.Name, w.Slices, w.Rows, w.Cols)
	rowBytes := w.RowBytes()
	ensure(rowBytes > 0, op, "weight %q: %d columns are not a multiple of the %d of a %s block", w.Name, w.Cols, w.Type.BlockElements(), w.Type)
	matrix := w.Rows * rowBytes
	ensure(w.Slices == 1 || w.SliceBytes >= matrix, op, "weight %q: %d bytes from one matrix to the next, a matrix has %d", w.Name, w.SliceBytes, matrix)
	need := (w.Slices-1)*w.SliceBytes + matrix
	ensure(len(w.Data) >= need, op, "weight %q has %d bytes, needs %d", w.Name, len(w.Data), need)
}
