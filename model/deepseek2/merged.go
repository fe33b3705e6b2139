package deepseek2

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// Files of 2024 have attn_kv_b, with which keys and values are computed from a latent
// row. The values' rows of it serve as attn_v_b. attn_k_b brings queries to the latent
// space; for it each head's rows for keys must be transposed. Quantised matrices become
// float16, because their blocks cannot be transposed; others keep their type.

// transposedType is the type of the transpose of a matrix.
func transposedType(t gguf.Type) gguf.Type {
	switch t {
	case gguf.F32, gguf.BF16:
		return t
	}
	return gguf.F16
}

// transposeKeys is H x [R][Nope] from keys, H x [Nope][R], of the given layer. The file
// keeps it. Errors name the file and the layer.
func transposeKeys(f *gguf.File, b kernels.Backend, layer int, keys kernels.Weight) (kernels.Weight, error) {
	name, t := fmt.Sprintf("blk.%d.attn_k_b.weight, from attn_kv_b", layer), transposedType(keys.Type)
	if !b.CanCompute(t) {
		return kernels.Weight{}, fmt.Errorf("%s: tensor %q of type %s, which the %s backend cannot compute with", f.Path(), name, t, b.Name())
	}
	rank, nope, heads := keys.Cols, keys.Rows, keys.Slices
	fill := func(data []byte) error {
		row := make([]float32, rank)
		put := putter(t)
		for h := range heads {
			for j := range nope {
				src := keys.Data[h*keys.SliceBytes+j*keys.Stride():][:keys.RowBytes()]
				if err := gguf.Dequantize(row, keys.Type, src); err != nil {
					return err
				}
				for c, v := range row {
					put(data, (h*rank+c)*nope+j, v)
				}
			}
		}
		return nil
	}
	derived := name
	if !kernels.ValuesMatter(b) {
		// A plan needs the shape alone, and transposing the 61 layers of R1 takes ten
		// seconds. The shape has a name of its own, because what is derived is kept with
		// the file.
		derived, fill = name+", without values", nil
	}
	d, err := f.Derive(derived, t, []int64{int64(nope), int64(rank), int64(heads)}, fill)
	if err != nil {
		return kernels.Weight{}, err
	}
	if err := b.Map(d.Data); err != nil {
		return kernels.Weight{}, fmt.Errorf("%s: tensor %q: %s backend: %w", f.Path(), name, b.Name(), err)
	}
	return kernels.Weight{Name: name, Type: t, Cols: nope, Rows: rank, Slices: heads,
		SliceBytes: rank * t.RowBytes(nope), Data: d.Data, Scales: keys.Scales}, nil
}

// putter stores element i of a float type.
func putter(t gguf.Type) func(data []byte, i int, v float32) {
	switch t {
	case gguf.F32:
		return func(data []byte, i int, v float32) { binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v)) }
	case gguf.BF16: // from BF16
		return func(data []byte, i int, v float32) {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(math.Float32bits(v)>>16))
		}
	}
	return func(data []byte, i int, v float32) {
		binary.LittleEndian.PutUint16(data[2*i:], float16.Fromfloat32(v).Bits())
	}
}
