//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
)

func TestMatMul(t *testing.T) {
	kerneltest.Run(t, open, "Embed", "MatMul", "NormMatMul", "MatMulGrouped")
}

// mapped copies data into pages of its own, 8 bytes from their start, where a
// tensor of a GGUF file may begin.
func mapped(t *testing.T, b kernels.Backend, data []byte) []byte {
	t.Helper()
	pages, free := kerneltest.Pages(t, len(data)+16)
	for i := range pages {
		pages[i] = 0xff
	}
	t.Cleanup(free)
	require.NoError(t, b.Map(pages))
	n := 8 + copy(pages[8:], data)
	return pages[8:n:n]
}

// matrix is a matrix of the bytes, and its values.
func matrix(t *testing.T, b kernels.Backend, typ gguf.Type, rows, cols int, data []byte) (kernels.Weight, []float32) {
	t.Helper()
	values := make([]float32, rows*cols)
	for r := range rows {
		n := typ.RowBytes(cols)
		require.NoError(t, gguf.Dequantize(values[r*cols:(r+1)*cols], typ, data[r*n:(r+1)*n]))
	}
	w := kernels.Weight{Name: "test." + typ.String(), Type: typ, Cols: cols, Rows: rows, Slices: 1, SliceBytes: len(data)}
	w.Data = mapped(t, b, data)
	return w, values
}

// anyBytes are bytes as any file may hold them.
func anyBytes(rng *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.UintN(256))
	}
	return data
}

// TestDecoders: every type gives the numbers of gguf.Dequantize for any bytes,
// scales that are subnormal, infinite or no number among them.
func TestDecoders(t *testing.T) {
	t.Setenv("MTLSIM_MAX_BUFFER", "45056") // some matrices take several views
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	for _, typ := range kerneltest.Types {
		rng := rand.New(rand.NewPCG(1, uint64(typ)))
		rows, cols := 90, typ.BlockElements()
		if cols == 1 {
			cols = 37
		}
		w, want := matrix(t, b, typ, rows, cols, anyBytes(rng, rows*typ.RowBytes(cols)))
		for first := 0; first < rows; first += 15 { // as many as fit in a buffer
			ids := make([]int32, 15)
			for i := range ids {
				ids[i] = int32(rows - 1 - first - i)
			}
			out := kerneltest.OnDevice(t, b, make([]float32, len(ids)*cols))
			b.Embed(out, w, kerneltest.OnDevice(t, b, ids))
			require.NoError(t, b.Flush())
			for i, id := range ids {
				for c, v := range want[int(id)*cols:][:cols] {
					got := out[i*cols+c]
					same := got == v || got != got && v != v
					if math.Abs(float64(v)) < 0x1p-126 { // a GPU may take such a number for 0
						same = same || got == 0
					}
					require.True(t, same, "%s: weight %d of row %d is %v, must be %v", typ, c, id, got, v)
				}
			}
		}
	}
}

// product is a case of MatMulGrouped.
type product struct {
	typ                        gguf.Type
	rows, cols, tokens, groups int
}

// checkProducts compares products with sums in float64. The error of a sum of
// float32 products is small against the sum of their absolute values; where a
// type has minima, what is added is as large as the largest weight of a chunk.
func checkProducts(t *testing.T, b kernels.Backend, cases []product) {
	for _, c := range cases {
		name := fmt.Sprintf("%s %d rows in %d groups, %d columns, %d tokens", c.typ, c.rows, c.groups, c.cols, c.tokens)
		rng := rand.New(rand.NewPCG(2, uint64(c.rows*c.cols+c.tokens)))
		w, values := matrix(t, b, c.typ, c.rows, c.cols, kerneltest.Blocks(rng, c.typ, c.rows*c.cols, 1./16))
		x := kerneltest.Normal(rng, c.tokens*c.groups*c.cols, 1)
		n := c.tokens * c.rows
		out := kerneltest.OnDevice(t, b, make([]float32, n+5))
		for i := range out {
			out[i] = float32(math.NaN())
		}
		if xs := kerneltest.OnDevice(t, b, x); c.groups > 1 {
			b.MatMulGrouped(out, xs, c.tokens, w.RowGroups(c.groups))
		} else {
			b.MatMul(xs, c.tokens, kernels.Product{W: w, Out: out})
		}
		require.NoError(t, b.Flush(), name)
		for i := range n {
			token, row := i/c.rows, i%c.rows
			xr := x[(token*c.groups+row/(c.rows/c.groups))*c.cols:][:c.cols]
			wr := values[row*c.cols:][:c.cols]
			var sum, size float64
			for k, v := range wr {
				chunk := wr[k/16*16 : min(c.cols, k/16*16+16)]
				largest := 0.0
				for _, u := range chunk {
					largest = max(largest, math.Abs(float64(u)))
				}
				sum += float64(v) * float64(xr[k])
				size += largest * math.Abs(float64(xr[k]))
			}
			got := float64(out[i])
			require.True(t, math.Abs(got-sum) <= 3e-7*size, "%s: token %d, row %d is %v, must be %v", name, token, row, got, sum)
		}
		for _, v := range out[n:] {
			require.True(t, v != v, "%s: memory behind out was written", name)
		}
	}
}

// TestProducts: every kernel with shapes that fit its threadgroups and shapes
// that do not, columns that are shared by 1, 2 and 4 simdgroups.
func TestProducts(t *testing.T) {
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	checkProducts(t, b, []product{
		{gguf.F32, 1, 1, 1, 1},
		{gguf.F16, 1, 1, 9, 1},
		{gguf.BF16, 5, 37, 8, 1},
		{gguf.F16, 130, 33, 33, 1},
		{gguf.F32, 3, 2055, 2, 1},
		{gguf.Q8_0, 64, 32, 32, 1},   // one tile
		{gguf.Q8_0, 65, 64, 31, 1},   // a row more, a token less
		{gguf.Q8_0, 128, 96, 64, 1},  // whole tiles
		{gguf.MXFP4, 63, 96, 65, 1},  // ragged in both
		{gguf.Q8_0, 17, 512, 1, 1},   // one simdgroup for a row
		{gguf.Q8_0, 17, 1024, 1, 1},  // two
		{gguf.Q4_K, 3, 2048, 3, 1},   // four
		{gguf.Q2_K, 10, 4096, 8, 1},  // four
		{gguf.F16, 8200, 1024, 1, 1}, // one: there are rows enough
		{gguf.MXFP4, 192, 256, 40, 3},
		{gguf.NVFP4, 63, 192, 65, 1},
		{gguf.NVFP4, 17, 1024, 1, 1},
		{gguf.Q8_0, 63, 64, 5, 7},
		{gguf.F32, 100, 50, 17, 4},
		{gguf.Q4_K, 40, 256, 1, 8},
	})
	b.MatMul(nil, 0, kernels.Product{W: kernels.Weight{Name: "w", Type: gguf.F32, Cols: 1, Rows: 1, Slices: 1, Data: mapped(t, b, make([]byte, 4))}})
	require.NoError(t, b.Flush())
}

// TestProductsOfViews: matrices that take several buffers, which end within a
// group of rows.
func TestProductsOfViews(t *testing.T) {
	t.Setenv("MTLSIM_MAX_BUFFER", "45056") // of a real device larger: one buffer
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	checkProducts(t, b, []product{
		{gguf.F32, 300, 16, 9, 30},
		{gguf.F32, 300, 16, 1, 30},
		{gguf.F32, 500, 64, 9, 1},
		{gguf.MXFP4, 1001, 32, 4, 7},
		{gguf.Q8_0, 400, 160, 1, 2},
	})
}

// TestEmbedOfWrongRows: a row that is not there is reported, and nothing else.
func TestEmbedOfWrongRows(t *testing.T) {
	for _, id := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
		b := open(t)
		w, want := matrix(t, b, gguf.F32, 3, 4, make([]byte, 48))
		out := kerneltest.OnDevice(t, b, []float32{9, 9, 9, 9, 9, 9, 9, 9})
		b.Embed(out, w, kerneltest.OnDevice(t, b, []int32{2, id}))
		require.ErrorContains(t, b.Flush(), "row index")
		require.Equal(t, want[8:], out[:4])
		require.NoError(t, b.Close())
	}
}

// TestWeightsBeginAtNumbers: the decoders load whole numbers.
func TestWeightsBeginAtNumbers(t *testing.T) {
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	x, out := kerneltest.OnDevice(t, b, make([]float32, 32)), kerneltest.OnDevice(t, b, make([]float32, 1))
	for typ, step := range map[gguf.Type]int{gguf.F32: 2, gguf.Q8_0: 1} {
		data := mapped(t, b, make([]byte, 256))[step:]
		require.Panics(t, func() {
			b.MatMul(x, 1, kernels.Product{W: kernels.Weight{Name: "w", Type: typ, Cols: 32, Rows: 1, Slices: 1, Data: data}, Out: out})
		}, typ)
	}
	w := kernels.Weight{Name: "w", Type: gguf.MXFP4, Cols: 32, Rows: 1, Slices: 1, Data: mapped(t, b, make([]byte, 256))[3:]}
	b.MatMul(x, 1, kernels.Product{W: w, Out: out})
	require.NoError(t, b.Flush())
	require.Zero(t, out[0])
}

// TestManyProducts: products of one row have the bits that each has alone, whether a dispatch
// takes all, some have no kernel in common, or a matrix takes several views.
func TestManyProducts(t *testing.T) {
	t.Setenv("MTLSIM_MAX_BUFFER", "90112")
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	const cols = 1024
	rng := rand.New(rand.NewPCG(3, 1))
	x := kerneltest.OnDevice(t, b, kerneltest.Normal(rng, cols, 1))
	for _, types := range [][]gguf.Type{
		{gguf.Q8_0, gguf.Q8_0, gguf.F16, gguf.F16, gguf.F16, gguf.F16, gguf.F16},
		{gguf.F16, gguf.Q8_0, gguf.F32, gguf.F32, gguf.BF16, gguf.Q8_0},
		{gguf.Q4_K, gguf.Q4_K, gguf.Q2_K, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, gguf.MXFP4},
	} {
		var products []kernels.Product
		for i, typ := range types {
			w := func(rows int) kernels.Weight {
				w, _ := matrix(t, b, typ, rows, cols, kerneltest.Blocks(rng, typ, rows*cols, 1./16))
				return w
			}
			rows := []int{9, 64, 1, 130}[i%4]
			p := kernels.Product{W: w(rows), Out: kerneltest.OnDevice(t, b, make([]float32, rows))}
			if i%3 == 1 {
				p.Up, p.UpOut, p.Clamp = w(rows), kerneltest.OnDevice(t, b, make([]float32, rows)), 2
			}
			products = append(products, p)
		}
		var want [][]uint32
		for _, p := range products {
			alone := kernels.Product{W: p.W, Out: kerneltest.OnDevice(t, b, make([]float32, p.W.Rows)), Up: p.Up, UpOut: p.UpOut, Clamp: p.Clamp}
			b.MatMul(x, 1, alone)
			require.NoError(t, b.Flush())
			want = append(want, kerneltest.Bits(alone.Out))
		}
		b.MatMul(x, 1, products...)
		require.NoError(t, b.Flush())
		for i, p := range products {
			require.Equal(t, want[i], kerneltest.Bits(p.Out), "%v: product %d", types, i)
		}
	}
}
