// Package gguftest provides GGUF files for the tests of other packages: models
// laid out by a Writer and opened, and blocks quantised from given numbers.
package gguftest

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

// Bytes returns the file that w writes. w must not have several parts.
func Bytes(t testing.TB, w *gguf.Writer) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, w.WriteFile(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// Unzipped reads the gzipped file at path into memory.
func Unzipped(path string) (*gguf.File, error) {
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(unzip)
	if err != nil {
		return nil, err
	}
	return gguf.Read(path, data)
}

// Open opens the file that w writes, with name as the end of its path in errors, and
// closes it at the end of the test. It maps a file because the page faults of a copy in
// memory took a large part of the tests' time.
func Open(t testing.TB, name string, w *gguf.Writer) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, w.WriteFile(path))
	return OpenFile(t, path)
}

// OpenFile opens a file and closes it at the end of the test.
func OpenFile(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}
