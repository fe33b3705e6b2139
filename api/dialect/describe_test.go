package dialect_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/gguf"
	"ringmaster/model/builtin"
)

// What the API shows of a file is the file's: sizes, the type with most of the
// bytes, what of the metadata is short; and a digest that no
// other file has.
func TestDescribe(t *testing.T) {
	f, err := builtin.Open()
	require.NoError(t, err)
	defer f.Close()
	d := dialect.Describe(f, true)
	require.True(t, d.OnGPU)
	require.Equal(t, f.Architecture(), d.Architecture)
	require.Equal(t, f.Size(), d.Bytes)
	require.Regexp(t, "^[0-9a-f]{64}$", d.Digest)
	elements, sizes := int64(0), map[string]int{}
	for _, tensor := range f.Tensors() {
		sizes[tensor.Type.String()] += len(tensor.Data)
		elements += int64(len(tensor.Data)) / int64(tensor.Type.BlockBytes()) * int64(tensor.Type.BlockElements())
	}
	require.Equal(t, elements, d.Parameters)
	require.Greater(t, len(sizes), 1, "with one type the test shows nothing")
	for name, size := range sizes {
		require.LessOrEqual(t, size, sizes[d.Quantization], name)
	}
	n, ok := f.Int(f.Architecture() + ".block_count")
	require.True(t, ok)
	require.Equal(t, n, d.Metadata[f.Architecture()+".block_count"])
	require.True(t, f.Has("tokenizer.ggml.tokens"))
	require.NotContains(t, d.Metadata, "tokenizer.ggml.tokens")
	_, err = json.Marshal(d)
	require.NoError(t, err)

	same, err := builtin.Open()
	require.NoError(t, err)
	defer same.Close()
	require.Equal(t, d.Digest, dialect.Describe(same, true).Digest)
	changed := append([]byte(nil), f.Mappings()[0]...)
	at := bytes.Index(changed, []byte("general.name")) + len("general.name") + 4 + 8 // after the kind and the length
	changed[at]++
	other, err := gguf.Read("other", changed)
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, d.Digest, dialect.Describe(other, true).Digest)
}
