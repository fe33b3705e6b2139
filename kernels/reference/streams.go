package reference

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// HCInit copies x to every stream.
func (b *Backend) HCInit(h, x []float32, rows, streams, cols int) {
	contract.HCInit(h, x, rows, streams, cols)
	for t := range rows {
		for s := range streams {
			copy(h[(t*streams+s)*cols:][:cols], x[t*cols:])
		}
	}
}

// HCMix computes the coefficients from Fn·h: sigmoids and the Sinkhorn
// normalisation. Then it collapses the streams and norms them.
func (b *Backend) HCMix(a kernels.HCMixArgs) {
	contract.HCMix(&a)
	if a.Y != nil {
		b.HCExpand(a.H, a.Y, a.Post, a.Comb, a.Rows, a.Streams, a.Cols)
	}
	s, n := a.Streams, a.Streams*a.Cols
	fn := b.rows(a.Fn, 0)
	for t := range a.Rows {
		h := a.H[t*n : (t+1)*n]
		r := 1 / math.Sqrt(sumSquares(h)/float64(n)+float64(a.RMSEps))
		// part is which of the three scales the coefficient k belongs to
		mixed := func(k, part int) float64 {
			return r*dot(fn[k], h)*float64(a.Scale[part]) + float64(a.Base[k])
		}
		for i := range s {
			a.Pre[t*s+i] = float32(sigmoid(mixed(i, 0)) + float64(a.Eps))
			a.Post[t*s+i] = float32(2 * sigmoid(mixed(s+i, 1)))
		}
		c := mat.NewDense(s, s, nil)
		for i := range s {
			for j := range s {
				c.Set(i, j, mixed(2*s+s*i+j, 2))
			}
		}
		sinkhorn(c, a.Iterations, float64(a.Eps))
		for i := range s {
			for j := range s {
				a.Comb[(t*s+i)*s+j] = float32(c.At(i, j))
			}
		}
	}
	b.HCCollapse(a.X, a.H, a.Weights, a.Rows, s, a.Cols)
	b.RMSNorm(a.X, a.X, a.Norm, a.Rows, a.Cols, a.RMSEps)
}

// sinkhorn makes c nearly doubly stochastic: a softmax of each row plus eps and
// a normalisation of each column, then iterations-1 times both normalisations.
func sinkhorn(c *mat.Dense, iterations int, eps float64) {
	n, _ := c.Dims()
	for i := range n {
		row := c.RawRowView(i)
		largest := row[0]
		for _, v := range row {
			largest = math.Max(largest, v)
		}
		sum := 0.0
		for j, v := range row {
			row[j] = math.Exp(v - largest)
			sum += row[j]
		}
		for j := range row {
			row[j] = row[j]/sum + eps
		}
	}
	columns := func() {
		for j := range n {
			sum := mat.Sum(c.ColView(j)) + eps
			for i := range n {
				c.Set(i, j, c.At(i, j)/sum)
			}
		}
	}
	columns()
	for range iterations - 1 {
		for i := range n {
			sum := mat.Sum(c.RowView(i)) + eps
			for j := range n {
				c.Set(i, j, c.At(i, j)/sum)
			}
		}
		columns()
	}
}

// HCCollapse is the weighted sum of the streams.
func (b *Backend) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	contract.HCCollapse(out, h, pre, rows, streams, cols)
	for t := range rows {
		for c := range cols {
			sum := 0.0
			for s := range streams {
				sum += float64(pre[t*streams+s]) * float64(h[(t*streams+s)*cols+c])
			}
			out[t*cols+c] = float32(sum)
		}
	}
}

// HCExpand is h' = post ⊗ y + combᵀ h.
func (b *Backend) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	contract.HCExpand(h, y, post, comb, rows, streams, cols)
	old := make([]float64, streams)
	for t := range rows {
		for c := range cols {
			for i := range streams {
				old[i] = float64(h[(t*streams+i)*cols+c])
			}
			for j := range streams {
				sum := float64(post[t*streams+j]) * float64(y[t*cols+c])
				for i := range streams {
					sum += float64(comb[(t*streams+i)*streams+j]) * old[i]
				}
				h[(t*streams+j)*cols+c] = float32(sum)
			}
		}
	}
}

// HCHead collapses the streams with its own weights.
func (b *Backend) HCHead(a kernels.HCHeadArgs) {
	contract.HCHead(&a)
	n := a.Streams * a.Cols
	fn := b.rows(a.Fn, 0)
	for t := range a.Rows {
		h := a.H[t*n : (t+1)*n]
		r := 1 / math.Sqrt(sumSquares(h)/float64(n)+float64(a.RMSEps))
		out := make([]float64, a.Cols)
		for s := range a.Streams {
			w := sigmoid(r*dot(fn[s], h)*float64(a.Scale[0])+float64(a.Base[s])) + float64(a.Eps)
			for c := range out {
				out[c] += w * float64(h[s*a.Cols+c])
			}
		}
		for c, v := range out {
			a.Out[t*a.Cols+c] = float32(v)
		}
	}
}

// HCGate adds the gated value to each stream.
func (b *Backend) HCGate(a kernels.HCGateArgs) {
	contract.HCGate(&a)
	n := a.Cols
	for t := range a.Rows {
		kv := a.KV[t*(a.Streams+1)*n:][:(a.Streams+1)*n]
		value := kv[a.Streams*n:]
		for s := range a.Streams {
			h, key := a.H[(t*a.Streams+s)*n:][:n], kv[s*n:][:n]
			sum := 0.0
			for c := range n {
				sum += float64(key[c]) * float64(a.KeyNorm[s*n+c]) * float64(h[c]) * float64(a.HNorm[s*n+c])
			}
			r := func(x []float32) float64 { return 1 / math.Sqrt(sumSquares(x)/float64(n)+float64(a.Eps)) }
			d := sum * r(h) * r(key) / math.Sqrt(float64(n))
			gate := sigmoid(math.Copysign(math.Sqrt(math.Max(math.Abs(d), 1e-6)), d))
			for c := range n {
				h[c] = float32(float64(h[c]) + gate*float64(value[c]))
			}
		}
	}
}
