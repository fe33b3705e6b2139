package reference

import (
	"math"

	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Embed copies rows of w.
func (b *Backend) Embed(out []float32, w kernels.Weight, ids []int32) {
	contract.Embed(out, w, ids)
	contract.Rows("Embed", ids, w.Rows)
	for t, id := range ids {
		copy(out[t*w.Cols:(t+1)*w.Cols], b.row(w, 0, int(id)))
	}
}

// MatMul sums each dot product in float64.
func (b *Backend) MatMul(x []float32, rows int, products ...kernels.Product) {
	contract.MatMul(x, rows, products...)
	for _, p := range products {
		k, n := p.W.Cols, p.W.Rows
		by := func(w kernels.Weight, values []float32, t int) float64 {
			return float64(w.Scale(0)) * dot(values, x[t*k:])
		}
		var ups [][]float32
		if p.Up.Exists() {
			ups = b.rows(p.Up, 0)
		}
		for r, w := range b.rows(p.W, 0) {
			for t := range rows {
				y := by(p.W, w, t)
				if p.Up.Exists() {
					y = swiglu(y, by(p.Up, ups[r], t), float64(p.Clamp))
				}
				p.Out[t*n+r] = float32(y)
			}
		}
	}
}

// NormMatMul is the two ops.
func (b *Backend) NormMatMul(x, weight []float32, eps float32, rows int, products ...kernels.Product) {
	contract.NormMatMul(x, weight, rows, products...)
	b.RMSNorm(x, x, weight, rows, products[0].W.Cols, eps)
	b.MatMul(x, rows, products...)
}

// MatMulGrouped gives each matrix of the stack its own columns of x.
func (b *Backend) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	contract.MatMulGrouped(out, x, rows, w)
	for g := range w.Slices {
		for r, row := range b.rows(w, g) {
			for t := range rows {
				out[(t*w.Slices+g)*w.Rows+r] = float32(float64(w.Scale(g)) * dot(row, x[(t*w.Slices+g)*w.Cols:]))
			}
		}
	}
}

// RMSNorm divides by the root mean square.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	contract.RMSNorm(out, x, weight, rows, cols)
	for t := range rows {
		row := x[t*cols : (t+1)*cols]
		scale := 1 / math.Sqrt(sumSquares(row)/float64(cols)+float64(eps))
		for i, v := range row {
			y := float64(v) * scale
			if weight != nil {
				y *= float64(weight[i])
			}
			out[t*cols+i] = float32(y)
		}
	}
}

// LayerNorm takes the mean away and divides by the standard deviation.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	contract.LayerNorm(out, x, weight, bias, rows, cols)
	for t := range rows {
		row := x[t*cols : (t+1)*cols]
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += float64(v) / float64(cols)
		}
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(cols)
		}
		for i, v := range row {
			y := (float64(v) - mean) / math.Sqrt(variance+float64(eps))
			out[t*cols+i] = float32(y*float64(weight[i]) + float64(bias[i]))
		}
	}
}

// RoPE rotates pairs of the tail, or of the front, of every head, between the ops that the
// arguments add.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	contract.RoPE(&a)
	if a.Norm {
		b.RMSNorm(a.X, a.X, a.NormWeight, a.Rows*a.Heads, a.HeadDim, a.Eps)
	}
	for t := range a.Rows {
		for h := range a.Heads {
			head := a.X[(t*a.Heads+h)*a.HeadDim:][:a.HeadDim]
			x := make([]float64, len(head))
			for i, v := range head {
				x[i] = float64(v)
			}
			turned := x[a.HeadDim-a.RotDim:]
			if a.Front {
				turned = x[:a.RotDim]
			}
			rotate(turned, int(a.Pos[t]), a.Freqs, a.Halves, a.Inverse)
			for i := range turned {
				turned[i] *= float64(a.Turn())
			}
			for i, v := range x {
				head[i] = float32(v)
			}
		}
	}
	if a.Hadamard {
		b.Hadamard(a.X, a.Rows*a.Heads, a.HeadDim)
	}
	if a.Ring != nil {
		b.StoreKV(a.Ring, a.X, a.Rows, a.HeadDim, a.RingPos, a.RingRows)
	}
}

// rotate rotates x in interleaved pairs, or in those of its halves.
func rotate(x []float64, pos int, freqs []float32, halves, inverse bool) {
	for i := range len(x) / 2 {
		angle := float64(float32(pos) * freqs[i]) // the product is rounded to float32
		if inverse {
			angle = -angle
		}
		sin, cos := math.Sincos(angle)
		first, second := 2*i, 2*i+1
		if halves {
			first, second = i, len(x)/2+i
		}
		x0, x1 := x[first], x[second]
		x[first], x[second] = x0*cos-x1*sin, x0*sin+x1*cos
	}
}

// Hadamard multiplies each row by the matrix H[i][j] = dim^-½ * (-1)^popcount(i&j).
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	contract.Hadamard(x, rows, dim)
	for t := range rows {
		row := x[t*dim : (t+1)*dim]
		y := make([]float64, dim)
		for i, v := range row {
			y[i] = float64(v)
		}
		hadamard(y)
		for i, v := range y {
			row[i] = float32(v)
		}
	}
}

// hadamard transforms x in place by butterflies in natural (Sylvester) order.
func hadamard(x []float64) {
	for step := 1; step < len(x); step *= 2 {
		for base := 0; base < len(x); base += 2 * step {
			for i := base; i < base+step; i++ {
				x[i], x[i+step] = x[i]+x[i+step], x[i]-x[i+step]
			}
		}
	}
	scale := 1 / math.Sqrt(float64(len(x)))
	for i := range x {
		x[i] *= scale
	}
}

// SumSlots adds in float32: the order is the contract.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int) {
	contract.SumSlots(out, slots, rows, used, cols)
	for t := range rows {
		for c := range cols {
			var sum float32
			for i := range used {
				if v := slots[(t*used+i)*cols+c]; i == 0 {
					sum = v
				} else {
					sum += v
				}
			}
			out[t*cols+c] = sum
		}
	}
}

// SumExact adds multiples of 2^-24.
func (b *Backend) SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) {
	contract.SumExact(sums, terms, rows, count, cols, add)
	for t := range rows {
		for c := range cols {
			sum := int64(0)
			if add {
				sum = sums[t*cols+c]
			}
			for i := range count {
				v := terms[(t*count+i)*cols+c]
				if r := float16.Fromfloat32(v); !r.IsInf(0) {
					v = r.Float32()
				}
				switch {
				case sum == kernels.NotANumber:
				case math.Abs(float64(v)) < 1<<31:
					sum += int64(float64(v) * (1 << 24))
				default:
					sum = kernels.NotANumber
				}
			}
			sums[t*cols+c] = sum
		}
	}
}

// RoundSums works element by element; the conversion rounds.
func (b *Backend) RoundSums(out []float32, sums []int64, n int) {
	contract.RoundSums(out, sums, n)
	for i, s := range sums[:n] {
		out[i] = float32(s) / (1 << 24)
		if s == kernels.NotANumber {
			out[i] = math.Float32frombits(0x7fc00000)
		}
	}
}

// swiglu is silu(gate)*up, both clamped.
func swiglu(gate, up, clamp float64) float64 {
	if clamp > 1e-6 {
		gate = math.Min(gate, clamp)
		up = math.Max(-clamp, math.Min(up, clamp))
	}
	return silu(gate) * up
}

// Add works element by element, in float32.
func (b *Backend) Add(out, x, y []float32, n int) {
	contract.Add(out, x, y, n)
	for i := range n {
		out[i] = x[i] + y[i]
	}
}

// ToFloat16 rounds to nearest, ties to even.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	contract.ToFloat16(out, x, n)
	for i, v := range x[:n] {
		out[i] = float16.Fromfloat32(v).Bits()
	}
}

// FromFloat16 converts exactly.
func (b *Backend) FromFloat16(out []float32, x []uint16, n int) {
	contract.FromFloat16(out, x, n)
	copy(out, halves(x[:n]))
}

// Clear writes zeros.
func (b *Backend) Clear(x []float32, n int) {
	contract.Clear(x, n)
	clear(x[:n])
}

// Gather copies the rows that are listed.
func (b *Backend) Gather(out, x []float32, rows []int32, cols int) {
	contract.Gather(out, x, rows, cols)
	contract.Rows("Gather", rows, len(x)/cols)
	for i, r := range rows {
		copy(out[i*cols:(i+1)*cols], x[int(r)*cols:])
	}
}

// CopyColumns copies the columns row by row.
func (b *Backend) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	contract.CopyColumns(out, x, rows, cols, outCols, xCols)
	for r := range rows {
		copy(out[r*outCols:][:cols], x[r*xCols:])
	}
}
