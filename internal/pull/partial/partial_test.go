package partial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

func open(t *testing.T, path string, id Identity) (*File, bool) {
	t.Helper()
	f, dropped, err := Open(path, id)
	require.NoError(t, err)
	return f, dropped
}

func TestResumesAndFinishes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	content := []byte("0123456789abcdef")
	id := Identity{Size: 16, Tag: "v1", Chunk: 6}
	f, dropped := open(t, path, id)
	require.False(t, dropped)
	require.Equal(t, 3, f.Ranges())
	offset, length := f.Range(2)
	require.EqualValues(t, []int64{12, 4}, []int64{offset, length})
	_, _, err := Open(path, id)
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, f.Append(2, content[12:]))
	require.NoError(t, f.Append(0, content[:3]))
	require.ErrorContains(t, f.Append(0, content[:4]), "4 bytes for the 3 that are missing of range 0")
	require.NoError(t, f.Save())
	require.NoError(t, f.Append(1, content[6:12])) // after the state was saved, so a crash loses it
	require.NoError(t, f.Close())

	f, dropped = open(t, path, id)
	require.False(t, dropped)
	require.EqualValues(t, 7, f.Done())
	require.NoError(t, f.Append(0, content[3:6]))
	require.NoError(t, f.Append(1, content[6:12]))
	read := int64(0)
	sum, err := f.Hash(t.Context(), func(n int64) { read += n })
	require.NoError(t, err)
	want := sha256.Sum256(content)
	require.Equal(t, hex.EncodeToString(want[:]), sum)
	require.EqualValues(t, 16, read)
	require.NoError(t, f.Finish())
	require.NoError(t, f.Close())
	got := testenv.ReadFile(t, path)
	require.Equal(t, content, got)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestAnotherFileIsDropped(t *testing.T) {
	id := Identity{Size: 16, Tag: "v1", Chunk: 6}
	for name, other := range map[string]Identity{
		"size":       {Size: 17, Tag: "v1", Chunk: 6},
		"tag":        {Size: 16, Tag: "v2", Chunk: 6},
		"chunk":      {Size: 16, Tag: "v1", Chunk: 8},
		"hash":       {Size: 16, SHA256: "00", Tag: "v1", Chunk: 6},
		"no version": {Size: 16, Chunk: 6},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			f, _ := open(t, path, id)
			require.NoError(t, f.Append(0, []byte("abc")))
			require.NoError(t, f.Save())
			require.NoError(t, f.Close())
			f, dropped := open(t, path, other)
			require.True(t, dropped)
			require.Zero(t, f.Done())
			require.NoError(t, f.Remove())
			require.NoError(t, f.Close())
		})
	}
}

func TestHashEndsWithItsContext(t *testing.T) {
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "m"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Hash(ctx, path, nil)
	require.ErrorIs(t, err, context.Canceled)
	room, err := Free(filepath.Dir(path))
	require.NoError(t, err)
	require.Positive(t, room)
}
