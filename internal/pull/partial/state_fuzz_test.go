package partial

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzState: opening any file of ranges ends, and the result lies within the file that is
// fetched.
func FuzzState(f *testing.F) {
	id := Identity{Size: 100, SHA256: "abc", Chunk: 30}
	f.Add([]byte(`{"version":1,"size":100,"sha256":"abc","chunk":30,"have":[30,7,0,10]}`), uint8(100))
	f.Add([]byte(`{"version":1,"size":100,"sha256":"abc","chunk":30,"have":[31,-7,0,9223372036854775807]}`), uint8(100))
	f.Add([]byte(`{"version":1,"size":100,"etag":"x","chunk":-1,"have":null}{`), uint8(3))
	f.Fuzz(func(t *testing.T, state []byte, size uint8) {
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, os.WriteFile(path+".part", make([]byte, size), 0o600))
		require.NoError(t, os.WriteFile(path+".part.json", state, 0o600))
		p, _, err := Open(path, id)
		require.NoError(t, err)
		require.Equal(t, 4, p.Ranges())
		require.True(t, p.Done() >= 0 && p.Done() <= id.Size)
		for i := range p.Ranges() {
			offset, length := p.Range(i)
			require.True(t, offset >= 0 && length > 0 && offset+length <= id.Size && p.Have(i) >= 0 && p.Have(i) <= length)
		}
		require.NoError(t, p.Save())
		require.NoError(t, p.Close())
	})
}
