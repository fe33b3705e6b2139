package testenv

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// ReadFile returns what a file contains. It ends the test if the file cannot be read.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// WriteFile writes a file that only its owner can read and returns its path. It ends the
// test if the file cannot be written.
func WriteFile[Data string | []byte](t testing.TB, path string, data Data) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	return path
}

// JSON encodes v. It ends the test if that fails.
func JSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// FromJSON decodes a T. It ends the test, and shows the text, if that fails.
func FromJSON[T any, Text ~string | ~[]byte](t testing.TB, text Text) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), "%s", text)
	return v
}
