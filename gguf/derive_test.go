package gguf_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
)

func TestDerive(t *testing.T) {
	w := gguf.NewWriter()
	require.NoError(t, w.Put("general.architecture", "none"))
	f, err := gguf.Read("a file", gguftest.Bytes(t, w))
	require.NoError(t, err)
	calls := 0
	fill := func(data []byte) error {
		calls++
		for i := range data {
			data[i] = byte(i)
		}
		return nil
	}
	_, err = f.Derive("x", gguf.F16, []int64{4, 3, 2}, func([]byte) error { return errors.New("no idea") })
	require.EqualError(t, err, `a file: tensor "x": no idea`)
	for range 2 {
		x, err := f.Derive("x", gguf.F16, []int64{4, 3, 2}, fill)
		require.NoError(t, err)
		require.Len(t, x.Data, 2*4*3*2)
		require.Equal(t, byte(47), x.Data[47])
	}
	require.Equal(t, 1, calls)
	_, err = f.Derive("y", gguf.Q8_0, []int64{33, 3}, fill)
	require.ErrorContains(t, err, "shape")
	_, ok := f.Tensor("x")
	require.False(t, ok)
	require.NoError(t, f.Close())
	_, err = f.Derive("x", gguf.F16, []int64{4, 3, 2}, fill)
	require.ErrorContains(t, err, "closed")
}
