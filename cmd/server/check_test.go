package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
)

// TestCheckWeights: --verify-model finds a damaged scale in a large matrix and names
// file, tensor, type and place; a sound file passes.
func TestCheckWeights(t *testing.T) {
	path := tinyModel(t, nil)
	ids := written(t, "1 2 3")
	run := func(more ...string) error {
		_, err := command(t, append([]string{"logits", "--model", path, "--tokens", ids, "--out", ids + ".f32"}, more...)...)
		return err
	}
	require.NoError(t, run("--verify-model"))

	f, err := gguf.Open(path)
	require.NoError(t, err)
	x, ok := f.Tensor("blk.1.ffn_down_exps.weight")
	require.True(t, ok)
	row, first := x.Type.RowBytes(int(x.Shape[0])), x.Data[:4096]
	data := testenv.ReadFile(t, path)
	at := bytes.Index(data, first) + 3*row
	typ := x.Type
	require.NoError(t, f.Close())
	require.Contains(t, []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4_K}, typ, "types whose blocks begin with the scale")
	copy(data[at:], []byte{0x00, 0x7c})
	require.NoError(t, os.WriteFile(path, data, 0o644))
	err = run("--verify-model")
	require.ErrorIs(t, err, gguf.ErrNonFinite)
	require.ErrorContains(t, err, path+`: tensor "blk.1.ffn_down_exps.weight" (`+typ.String()+`): row 3 of matrix 0, elements 0 to`)
	require.NoError(t, run(), "without the flag the matrix is not read at load")
}
