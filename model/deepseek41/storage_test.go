package deepseek41_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
)

// TestTableThatIsDamaged: a table of NaNs is refused when the model is opened, by the row of
// the step that is rehearsed then.
func TestTableThatIsDamaged(t *testing.T) {
	const table = "blk.1.engram_embd.weight"
	path := decodertest.Write(t, small(t))
	f, err := gguf.Open(path)
	require.NoError(t, err)
	x, ok := f.Tensor(table)
	require.True(t, ok)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(file, x.Data)
	size := len(x.Data)
	require.NoError(t, f.Close())
	copy(file[at:], bytes.Repeat([]byte{0xff}, size))
	require.NoError(t, os.WriteFile(path, file, 0o600))

	f, err = gguf.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	_, err = arch.Open(f, b, decoder.OpenOptions{MaxTokens: 8})
	require.ErrorIs(t, err, model.ErrStorage)
	require.ErrorIs(t, err, gguf.ErrNonFinite)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, `tensor "`+table+`": row `)
}
