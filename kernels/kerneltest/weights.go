package kerneltest

import (
	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// weight is a stack of random matrices of the type, see Blocks.
func (m *mem) weight(typ gguf.Type, slices, rows, cols int, deviation float64) kernels.Weight {
	require.Positive(m.t, typ.RowBytes(cols), "%s with %d columns", typ, cols)
	return m.mapped(typ, slices, rows, cols, Blocks(m.rng, typ, slices*rows*cols, deviation))
}

// plain is a matrix of the given values in F32, F16 or BF16.
func (m *mem) plain(typ gguf.Type, rows, cols int, values []float32) kernels.Weight {
	var data []byte
	for _, v := range values {
		data = appendPlain(data, typ, v)
	}
	return m.mapped(typ, 1, rows, cols, data)
}

func (m *mem) mapped(typ gguf.Type, slices, rows, cols int, data []byte) kernels.Weight {
	return kernels.Weight{
		Name: "blk.0.test." + typ.String(), Type: typ, Cols: cols, Rows: rows, Slices: slices, SliceBytes: len(data) / slices, Data: m.mapping(data),
	}
}
