package logits

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTooManyIDs: reading stops at more ids than any context holds, in memory that does
// not depend on the file's size.
func TestTooManyIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	written := make(chan int64, 1)
	go func() {
		n := int64(0)
		defer func() { written <- n }()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for line := bytes.Repeat([]byte("12345678\n"), 1<<12); n < 1<<30; n += int64(len(line)) {
			if _, err := f.Write(line); err != nil {
				return // the reader is gone
			}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadIDs(path)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "no context holds as many")
	require.Less(t, <-written, int64(64<<20))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), "with all that the slice outgrew and the words")
}
