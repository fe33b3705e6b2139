package gguf

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFirstNonFinite: in random blocks of every type a block is found exactly if an
// element of it is not finite.
func TestFirstNonFinite(t *testing.T) {
	for _, typ := range slices.Sorted(maps.Keys(layouts)) {
		if !typ.Weights() {
			_, ok := FirstNonFinite(typ, splitmix(1, 4096))
			require.False(t, ok)
			continue
		}
		size, elements := typ.BlockBytes(), typ.BlockElements()
		blocks := 1 << 16 / elements
		src := splitmix(uint64(typ)+99, blocks*size)
		dst := make([]float32, elements)
		var odd []int
		for b := range blocks {
			block := src[b*size : (b+1)*size]
			if typ == MXFP4 && b%5 == 0 {
				block[0] = 251 + byte(b/5%5) // 255 is NaN whatever its quants
			}
			require.NoError(t, Dequantize(dst, typ, block))
			want := slices.ContainsFunc(dst, func(x float32) bool { return x-x != 0 }) || typ == MXFP4 && block[0] == 255 ||
				typ == NVFP4 && slices.ContainsFunc(block[:4], func(d byte) bool { return d&127 == 127 })
			bad, got := FirstNonFinite(typ, block)
			require.Equal(t, want, got, "%s, block %x", typ, block)
			if got {
				odd = append(odd, b)
				require.False(t, bad.Value-bad.Value == 0, "%s: the value %v is finite", typ, bad.Value)
				require.Equal(t, elements > 1, bad.Field != "", typ)
			}
		}
		require.NotEmpty(t, odd, "%s: the random blocks have no such value", typ)
		require.Less(t, len(odd), blocks, typ)
		bad, ok := FirstNonFinite(typ, src)
		require.True(t, ok)
		require.Equal(t, odd[0], bad.Block, typ)
		_, ok = FirstNonFinite(typ, src[:bad.Block*size])
		require.False(t, ok)
	}
}

// weightsFile writes a file with tensors of zeros, each changed by its function.
func weightsFile(t *testing.T, tensors []Tensor, change map[string]func(data []byte)) string {
	w := NewWriter()
	for _, x := range tensors {
		n := int64(x.Type.BlockBytes())
		for i, d := range x.Shape {
			if i == 0 {
				d /= int64(x.Type.BlockElements())
			}
			n *= d
		}
		require.NoError(t, w.Add(x.Name, x.Type, x.Shape, func(w io.Writer) error {
			data := make([]byte, n)
			if f := change[x.Name]; f != nil {
				f(data)
			}
			_, err := w.Write(data)
			return err
		}))
	}
	path := filepath.Join(t.TempDir(), "w.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

// TestCheckWeights: the first damaged place of each tensor is named, in files of many
// pieces, and nothing else.
func TestCheckWeights(t *testing.T) {
	tensors := []Tensor{
		{Name: "norm", Type: F32, Shape: []int64{64}},
		{Name: "experts", Type: Q4_K, Shape: []int64{512, 100, 300}}, // more than one piece
		{Name: "ids", Type: I32, Shape: []int64{64}},
		{Name: "dense", Type: BF16, Shape: []int64{64, 3}},
	}
	put := func(offset int, v uint16) func([]byte) {
		return func(data []byte) { binary.LittleEndian.PutUint16(data[offset:], v) }
	}
	ids := func(data []byte) { binary.LittleEndian.PutUint32(data, 0x7fc00000) } // a number, of I32
	path := weightsFile(t, tensors, map[string]func([]byte){"ids": ids})
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	last, total := int64(0), int64(0)
	require.NoError(t, CheckWeights(t.Context(), f, func(done, all int64) {
		require.Greater(t, done, last)
		last, total = done, all
	}))
	require.EqualValues(t, 4*64+512/256*144*100*300+2*64*3, total)
	require.Equal(t, total, last)

	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	cancel(stop)
	require.ErrorIs(t, CheckWeights(ctx, f, nil), stop)

	row := 512 / 256 * 144
	path = weightsFile(t, tensors, map[string]func([]byte){
		"ids":  ids,
		"norm": func(data []byte) { binary.LittleEndian.PutUint32(data[4*7:], math.Float32bits(float32(math.Inf(-1)))) },
		"experts": func(data []byte) {
			put((299*100+99)*row+144+2, 0x7c00)(data) // in the last piece
			put((1*100+5)*row+144+2, 0x7e00)(data)
		},
		"dense": put(2*(64*2+63), 0x7f80),
	})
	f, err = Open(path)
	require.NoError(t, err)
	defer f.Close()
	err = CheckWeights(t.Context(), f, nil)
	require.ErrorIs(t, err, ErrNonFinite)
	why := ": " + ErrNonFinite.Error()
	require.EqualError(t, err, ""+
		path+`: tensor "norm" (F32): row 0, element 7 is -Inf`+why+"\n"+
		path+`: tensor "experts" (Q4_K): row 5 of matrix 1, elements 256 to 511 have the scale dmin = NaN`+why+"\n"+
		path+`: tensor "dense" (BF16): row 2, element 63 is +Inf`+why)
	norm, _ := f.Tensor("norm")
	require.ErrorContains(t, norm.CheckFinite(), `tensor "norm" (F32): row 0, element 7 is -Inf`)
	ints, _ := f.Tensor("ids")
	require.NoError(t, ints.CheckFinite())

	require.NoError(t, f.Close())
	require.ErrorIs(t, CheckWeights(t.Context(), f, nil), os.ErrClosed)
}
