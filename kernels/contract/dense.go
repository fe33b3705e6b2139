package contract

import "ringmaster/kernels"

// Embed checks Backend.Embed. The ids are not looked at.
func Embed(out []float32, w kernels.Weight, ids []int32) {
	const op = "Embed"
	Weight(op, "w", w)
	Len(op, "out", out, len(ids), w.Cols)
	apart(op, "out", out, len(ids)*w.Cols, "ids", ids, len(ids))
}

// MatMul checks Backend.MatMul.
func MatMul(x []float32, rows int, products ...kernels.Product) {
	const op = "MatMul"
	for i := range products {
		p := &products[i]
		Weight(op, "W", p.W)
		single(op, p.W)
		if p.W.Cols != products[0].W.Cols {
			Fail(op, "weight %q has %d columns, the first one %d", p.W.Name, p.W.Cols, products[0].W.Cols)
		}
		Len(op, "x", x, rows, p.W.Cols)
		Len(op, "Out", p.Out, rows, p.W.Rows)
		apart(op, "Out", p.Out, rows*p.W.Rows, "x", x, rows*p.W.Cols)
	}
}

// MatMulGrouped checks Backend.MatMulGrouped.
func MatMulGrouped(out, x []float32, rows, groups int, w kernels.Weight) {
	const op = "MatMulGrouped"
	Weight(op, "w", w)
	single(op, w)
	positive(op, "groups", groups)
	if w.Rows%groups != 0 {
		Fail(op, "%d rows of weight %q do not make %d groups", w.Rows, w.Name, groups)
	}
	Len(op, "x", x, rows, groups, w.Cols)
	Len(op, "out", out, rows, w.Rows)
	apart(op, "out", out, rows*w.Rows, "x", x, rows*groups*w.Cols)
}

// RMSNorm checks Backend.RMSNorm.
func RMSNorm(out, x, weight []float32, rows, cols int) {
	const op = "RMSNorm"
	positive(op, "cols", cols)
	Len(op, "x", x, rows, cols)
	Len(op, "out", out, rows, cols)
	sameOrApart(op, "out", out, "x", x, rows*cols)
	if weight != nil {
		Len(op, "weight", weight, cols)
		apart(op, "out", out, rows*cols, "weight", weight, cols)
	}
}

// RoPE checks Backend.RoPE.
func RoPE(a *kernels.RoPEArgs) {
	const op = "RoPE"
	notNegative(op, "Rows", a.Rows)
	positive(op, "Heads", a.Heads)
	positive(op, "HeadDim", a.HeadDim)
	rotDim(op, a.RotDim, a.HeadDim)
	Len(op, "X", a.X, a.Rows, a.Heads, a.HeadDim)
	Len(op, "Pos", a.Pos, a.Rows)
	Len(op, "Freqs", a.Freqs, a.RotDim/2)
	n := a.Rows * a.Heads * a.HeadDim
	apart(op, "X", a.X, n, "Pos", a.Pos, a.Rows)
	apart(op, "X", a.X, n, "Freqs", a.Freqs, a.RotDim/2)
}

func rotDim(op string, rot, dim int) {
	if rot < 0 || rot%2 != 0 || rot > dim {
		Fail(op, "RotDim is %d, must be even and at most %d", rot, dim)
	}
}

// Hadamard checks Backend.Hadamard.
func Hadamard(x []float32, rows, dim int) {
	const op = "Hadamard"
	notNegative(op, "rows", rows)
	powerOfTwo(op, "dim", dim)
	Len(op, "x", x, rows, dim)
}

func powerOfTwo(op, name string, v int) {
	if v <= 0 || v&(v-1) != 0 {
		Fail(op, "%s is %d, must be a power of two", name, v)
	}
}

// SumSlots checks Backend.SumSlots.
func SumSlots(out, slots []float32, rows, used, cols int) {
	const op = "SumSlots"
	positive(op, "used", used)
	Len(op, "out", out, rows, cols)
	Len(op, "slots", slots, rows, used, cols)
	apart(op, "out", out, rows*cols, "slots", slots, rows*used*cols)
}

// SwiGLU checks Backend.SwiGLU.
func SwiGLU(out, gate, up []float32, n int) {
	const op = "SwiGLU"
	Len(op, "out", out, n)
	Len(op, "gate", gate, n)
	Len(op, "up", up, n)
	sameOrApart(op, "out", out, "gate", gate, n)
	apart(op, "out", out, n, "up", up, n)
}

// Add checks Backend.Add.
func Add(out, a, b []float32, n int) {
	const op = "Add"
	Len(op, "out", out, n)
	Len(op, "a", a, n)
	Len(op, "b", b, n)
	sameOrApart(op, "out", out, "a", a, n)
	sameOrApart(op, "out", out, "b", b, n)
}

// ToFloat16 checks Backend.ToFloat16.
func ToFloat16(out []uint16, x []float32, n int) {
	const op = "ToFloat16"
	Len(op, "out", out, n)
	Len(op, "x", x, n)
	apart(op, "out", out, n, "x", x, n)
}

// FromFloat16 checks Backend.FromFloat16.
func FromFloat16(out []float32, x []uint16, n int) {
	const op = "FromFloat16"
	Len(op, "out", out, n)
	Len(op, "x", x, n)
	apart(op, "out", out, n, "x", x, n)
}

// Clear checks Backend.Clear.
func Clear(x []float32, n int) {
	Len("Clear", "x", x, n)
}

// Gather checks Backend.Gather. The row numbers are not looked at.
func Gather(out, x []float32, rows []int32, cols int) {
	const op = "Gather"
	positive(op, "cols", cols)
	Len(op, "out", out, len(rows), cols)
	apart(op, "out", out, len(rows)*cols, "x", x, len(x))
	apart(op, "out", out, len(rows)*cols, "rows", rows, len(rows))
}
