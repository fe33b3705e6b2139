//go:build unix

package gguf_test

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated is the disk space that a file takes.
func allocated(t *testing.T, info fs.FileInfo) int64 {
	t.Helper()
	s, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return int64(s.Blocks) * 512
}
