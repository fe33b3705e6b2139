package contract

import (
	"math"

	"ringmaster/kernels"
)

// Embed is Backend.Embed. The ids are not validated here.
func Embed(dst []float32, w kernels.Weight, ids []int32) Call {
	c := Call{Op: "Embed"}
	c.weight("w", &w)
	c.scales("w", &w, 0)
	in(&c, "ids", ids, len(ids))
	out(&c, "out", dst, len(ids), w.Cols)
	c.apart()
	return c
}

// MatMul checks Backend.MatMul. Each of its products is a Call of its own, see Product.
func MatMul(x []float32, rows int, products ...kernels.Product) {
	for i := range products {
		c := Product(x, rows, &products[i])
		if w := &products[i].W; w.Cols != products[0].W.Cols {
			c.fail("weight %q has %d columns, the first one %d", w.Name, w.Cols, products[0].W.Cols)
		}
	}
}

// Product is one of the products of Backend.MatMul.
func Product(x []float32, rows int, p *kernels.Product) Call {
	c := Call{Op: "MatMul"}
	c.single("W", &p.W)
	in(&c, "x", x, rows, p.W.Cols)
	out(&c, "out", p.Out, rows, p.W.Rows)
	if p.Up.Exists() {
		c.single("Up", &p.Up)
		if p.Up.Rows != p.W.Rows || p.Up.Cols != p.W.Cols {
			c.fail("W is [%d][%d] and Up [%d][%d]", p.W.Rows, p.W.Cols, p.Up.Rows, p.Up.Cols)
		}
		out(&c, "upOut", p.UpOut, rows, p.W.Rows)
	}
	c.apart()
	return c
}

// NormMatMul checks Backend.NormMatMul and returns the call of its norm.
func NormMatMul(x, weight []float32, rows int, products ...kernels.Product) Call {
	c := Call{Op: "NormMatMul"}
	if len(products) == 0 {
		c.fail("no products")
	}
	MatMul(x, rows, products...)
	in(&c, "weight", weight, products[0].W.Cols)
	inOut(&c, "x", x, rows, products[0].W.Cols)
	c.apart()
	return c
}

// MatMulGrouped is Backend.MatMulGrouped.
func MatMulGrouped(dst, x []float32, rows int, w kernels.Weight) Call {
	c := Call{Op: "MatMulGrouped"}
	c.weight("w", &w)
	c.scales("w", &w, 1)
	in(&c, "x", x, rows, w.Slices, w.Cols)
	out(&c, "out", dst, rows, w.Slices, w.Rows)
	c.apart()
	return c
}

// RMSNorm is Backend.RMSNorm.
func RMSNorm(dst, x, weight []float32, rows, cols int) Call {
	c := Call{Op: "RMSNorm"}
	c.positive("cols", cols)
	in(&c, "x", x, rows, cols).inPlace = true
	if weight != nil {
		in(&c, "weight", weight, cols)
	} else {
		in(&c, "weight", weight, 0)
	}
	out(&c, "out", dst, rows, cols)
	c.apart()
	return c
}

// LayerNorm is Backend.LayerNorm.
func LayerNorm(dst, x, weight, bias []float32, rows, cols int) Call {
	c := Call{Op: "LayerNorm"}
	c.positive("cols", cols)
	in(&c, "x", x, rows, cols).inPlace = true
	in(&c, "weight", weight, cols)
	in(&c, "bias", bias, cols)
	out(&c, "out", dst, rows, cols)
	c.apart()
	return c
}

// RoPE is Backend.RoPE.
func RoPE(a *kernels.RoPEArgs) Call {
	c := Call{Op: "RoPE"}
	c.notNegative("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("HeadDim", a.HeadDim)
	c.rotDim(a.RotDim, a.HeadDim)
	if !(a.Magnitude >= 0 && a.Magnitude <= math.MaxFloat32) {
		c.fail("Magnitude is %v, must be finite and at least 0", a.Magnitude)
	}
	in(&c, "Pos", a.Pos, a.Rows)
	in(&c, "Freqs", a.Freqs, a.RotDim/2)
	x := inOut(&c, "X", a.X, a.Rows, a.Heads, a.HeadDim)
	if a.Alone() {
		x.Moved = 2 * a.Rows * a.Heads * a.RotDim
	}
	weights, slots := 0, 0
	if a.Norm && a.NormWeight != nil {
		weights = a.HeadDim
	}
	in(&c, "NormWeight", a.NormWeight, weights)
	if a.Hadamard {
		c.powerOfTwo("HeadDim", a.HeadDim)
	}
	if a.Ring != nil {
		c.position(a.RingPos, a.Rows)
		c.positive("RingRows", a.RingRows)
		if a.Heads != 1 || a.Rows > a.RingRows {
			c.fail("%d rows of %d heads do not fit a ring of %d rows of one head", a.Rows, a.Heads, a.RingRows)
		}
		slots = a.RingRows
	}
	if ring := out(&c, "Ring", a.Ring, slots, a.HeadDim); a.Ring != nil {
		ring.ring(a.RingPos, a.Rows, a.HeadDim, a.RingRows)
	}
	c.apart()
	return c
}

// rotDim fails unless rot elements of a row of dim can be rotated in pairs.
func (c *Call) rotDim(rot, dim int) {
	if rot < 0 || rot%2 != 0 || rot > dim {
		c.fail("RotDim is %d, must be even and at most %d", rot, dim)
	}
}

// Hadamard is Backend.Hadamard.
func Hadamard(x []float32, rows, dim int) Call {
	c := Call{Op: "Hadamard"}
	c.notNegative("rows", rows)
	c.powerOfTwo("dim", dim)
	inOut(&c, "x", x, rows, dim)
	return c
}

// SumSlots is Backend.SumSlots.
func SumSlots(dst, slots []float32, rows, used, cols int) Call {
	c := Call{Op: "SumSlots"}
	c.positive("used", used)
	in(&c, "slots", slots, rows, used, cols)
	out(&c, "out", dst, rows, cols)
	c.apart()
	return c
}

// SumExact is Backend.SumExact.
func SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) Call {
	c := Call{Op: "SumExact"}
	c.positive("count", count)
	if count > kernels.MostExactTerms {
		c.fail("count is %d, must be at most %d", count, kernels.MostExactTerms)
	}
	in(&c, "terms", terms, rows, count, cols)
	if add {
		inOut(&c, "sums", sums, rows, cols)
	} else {
		out(&c, "sums", sums, rows, cols)
	}
	c.apart()
	return c
}

// RoundSums is Backend.RoundSums.
func RoundSums(dst []float32, sums []int64, n int) Call {
	c := Call{Op: "RoundSums"}
	in(&c, "sums", sums, n)
	out(&c, "out", dst, n)
	c.apart()
	return c
}

// Add is Backend.Add.
func Add(dst, a, b []float32, n int) Call {
	c := Call{Op: "Add"}
	in(&c, "a", a, n).inPlace = true
	in(&c, "b", b, n).inPlace = true
	out(&c, "out", dst, n)
	c.apart()
	return c
}

// ToFloat16 is Backend.ToFloat16.
func ToFloat16(dst []uint16, x []float32, n int) Call {
	return convert("ToFloat16", dst, x, n)
}

// FromFloat16 is Backend.FromFloat16.
func FromFloat16(dst []float32, x []uint16, n int) Call {
	return convert("FromFloat16", dst, x, n)
}

func convert[To, From number](op string, dst []To, x []From, n int) Call {
	c := Call{Op: op}
	in(&c, "x", x, n)
	out(&c, "out", dst, n)
	c.apart()
	return c
}

// Clear is Backend.Clear.
func Clear(x []float32, n int) Call {
	c := Call{Op: "Clear"}
	out(&c, "x", x, n)
	return c
}

// Gather is Backend.Gather. The row numbers are not validated here.
func Gather(dst, x []float32, rows []int32, cols int) Call {
	c := Call{Op: "Gather"}
	c.positive("cols", cols)
	in(&c, "x", x, len(x)/cols, cols).Moved = len(rows) * cols
	in(&c, "rows", rows, len(rows))
	out(&c, "out", dst, len(rows), cols)
	c.apart()
	return c
}

// CopyColumns is Backend.CopyColumns.
func CopyColumns(dst, x []float32, rows, cols, dstCols, xCols int) Call {
	c := Call{Op: "CopyColumns"}
	c.notNegative("rows", rows)
	c.positive("cols", cols)
	if cols > dstCols || cols > xCols {
		c.fail("%d columns of rows of %d and %d", cols, dstCols, xCols)
	}
	extent := func(stride int) int { // elements from the first touched one to the last
		if rows == 0 {
			return 0
		}
		return c.product("rows", []int{rows - 1, stride}) + cols
	}
	in(&c, "x", x, extent(xCols)).Moved = rows * cols
	inOut(&c, "out", dst, extent(dstCols)).Moved = rows * cols
	c.apart()
	return c
}
