package exact

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"ringmaster/gguf"
)

// weight is rows of a matrix in the file, or of one in memory.
type weight struct {
	kind gguf.Type
	wide int
	high int
	data []byte
	own  [][]float64 // the rows, instead of data
}

// matrix is a tensor as one matrix: the rows of a stack of matrices follow each other.
func matrix(t gguf.Tensor) weight {
	wide, high := int(t.Shape[0]), 1
	for _, n := range t.Shape[1:] {
		high *= int(n)
	}
	return weight{kind: t.Type, wide: wide, high: high, data: t.Data}
}

func (m *pass) tensor(name string) weight {
	t, ok := m.f.Tensor(name)
	if !ok {
		panic(fmt.Sprintf("tensor %q is missing", name))
	}
	return matrix(t)
}

// rows are n rows from the first on.
func (w weight) rows(first, n int) weight {
	if w.own != nil {
		w.own, w.high = w.own[first:first+n], n
		return w
	}
	size := w.kind.RowBytes(w.wide)
	w.data, w.high = w.data[first*size:(first+n)*size], n
	return w
}

func (w weight) row(i int) []float64 {
	if w.own != nil {
		return w.own[i]
	}
	size, narrow, row := w.kind.RowBytes(w.wide), make([]float32, w.wide), make([]float64, w.wide)
	if err := gguf.Dequantize(narrow, w.kind, w.data[i*size:(i+1)*size]); err != nil {
		panic(err.Error())
	}
	for j, v := range narrow {
		row[j] = float64(v)
	}
	return row
}

func (w weight) transposed() weight {
	turned := make([][]float64, w.wide)
	for i := range turned {
		turned[i] = make([]float64, w.high)
	}
	for j := range w.high {
		for i, v := range w.row(j) {
			turned[i][j] = v
		}
	}
	return weight{kind: w.kind, wide: w.high, high: w.wide, own: turned}
}

// product is w x for each row of x: [rows][w.high].
func (m *pass) product(w weight, x [][]float64) [][]float64 {
	if m.rounding.Activations {
		x = eightBits(x, w.kind)
	}
	out := make([][]float64, len(x))
	for t := range out {
		out[t] = make([]float64, w.high)
	}
	workers, wait := runtime.GOMAXPROCS(0), sync.WaitGroup{}
	for worker := range workers {
		wait.Go(func() {
			for j := w.high * worker / workers; j < w.high*(worker+1)/workers; j++ {
				row := w.row(j)
				for t, v := range x {
					out[t][j] = dot(row, v)
				}
			}
		})
	}
	wait.Wait()
	return out
}

// eightBits rounds activations as llama.cpp does for weights of this type.
func eightBits(x [][]float64, kind gguf.Type) [][]float64 {
	block := min(256, kind.BlockElements())
	switch kind {
	case gguf.F32:
		return x
	case gguf.F16, gguf.BF16:
		out := make([][]float64, len(x))
		for t, row := range x {
			out[t] = append([]float64(nil), row...)
			half(out[t])
		}
		return out
	}
	out := make([][]float64, len(x))
	for t, row := range x {
		out[t] = make([]float64, len(row))
		for first := 0; first < len(row); first += block {
			part, most := row[first:min(first+block, len(row))], 0.0
			for _, v := range part {
				most = max(most, math.Abs(v))
			}
			if most == 0 {
				continue
			}
			step := most / 127
			for i, v := range part {
				out[t][first+i] = math.RoundToEven(v/step) * step
			}
		}
	}
	return out
}
