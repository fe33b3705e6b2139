package gguf

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzOpen: whatever the input, Read returns a valid File or an error, without
// a panic and without allocating more than a small multiple of the input: a key
// of 14 bytes becomes an entry of the decoder's map (up to 200 bytes while it
// grows), a tensor of 40 bytes becomes the decoder's entry, ours and an index
// entry.
func FuzzOpen(f *testing.F) {
	f.Add(everyKind().tensor("a", Q8_0, 64, 34, 32).tensor("b", F32, 0, 64, 4, 2, 2).bytes())
	for _, c := range malformed {
		if len(c.data) <= 1<<10 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			t.Skip("NOT APPLICABLE: no news in a longer one")
		}
		var file *File
		var err error
		spent := allocatedBytes(func() { file, err = Read("fuzz", data) })
		require.LessOrEqual(t, spent, uint64(16*len(data)+512<<10))
		if err != nil {
			require.Nil(t, file)
			require.ErrorContains(t, err, "fuzz: ")
			return
		}
		requireSound(t, file)
	})
}

// requireSound checks the invariants of any File, and that no accessor panics.
func requireSound(t *testing.T, f *File) {
	t.Helper()
	whole := f.Mappings()[0]
	var total int
	for _, x := range f.Tensors() {
		require.True(t, x.Type.Known())
		rows := 1
		for _, n := range x.Shape[1:] {
			rows *= int(n)
		}
		require.Len(t, x.Data, rows*x.Type.RowBytes(int(x.Shape[0])))
		total += len(x.Data)
		y, ok := f.Tensor(x.Name)
		require.True(t, ok)
		require.Same(t, &x.Data[0], &y.Data[0])
	}
	require.LessOrEqual(t, total, len(whole))
	keys := f.Keys()
	require.True(t, slices.IsSorted(keys))
	for _, key := range keys {
		i, iok := f.Int(key)
		u, uok := f.Uint(key)
		x, xok := f.Float(key)
		if iok && i >= 0 {
			require.True(t, uok && xok)
			require.Equal(t, uint64(i), u)
			require.Equal(t, float64(i), x)
		}
		_, bok := f.Bool(key)
		_, sok := f.String(key)
		_, ssok := f.Strings(key)
		_, isok := f.Ints(key)
		_, xsok := f.Floats(key)
		_, arok := arrayValues(f.kv[key])
		require.True(t, arok || bok || sok || xok, "key %q is of no kind", key)
		_, bsok := f.Bools(key)
		require.False(t, isok && !xsok, "integers are numbers")
		require.False(t, bsok && (ssok || xsok))
		require.False(t, ssok && xsok)
	}
	require.NoError(t, f.Close())
}
