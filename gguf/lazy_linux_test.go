package gguf

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// resident is how many bytes of the mapping that starts at b are in memory, as
// the kernel counts them for this process.
func resident(t *testing.T, b []byte) int {
	kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(ofMapping(t, b, "Rss:"), "kB")))
	require.NoError(t, err)
	return kb << 10
}

// ofMapping is what the kernel says under a key about the mapping that starts at b.
func ofMapping(t *testing.T, b []byte, key string) string {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip("NOT CHECKED: the kernel has no /proc/self/smaps: ", err)
	}
	defer file.Close()
	start := fmt.Sprintf("%08x-", uintptr(unsafe.Pointer(&b[0])))
	in := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, start) {
			in = true
		}
		if rest, ok := strings.CutPrefix(line, key); in && ok {
			return rest
		}
	}
	t.Fatal("the mapping is not in /proc/self/smaps")
	return ""
}

// TestOpenTouchesOnlyTheHeader opens a file with a hole of 300 GB: only the
// header's pages may become resident, and allocations must stay far below that
// size.
func TestOpenTouchesOnlyTheHeader(t *testing.T) {
	const each = 256 * 256 << 20 // elements per tensor: 64 Gi
	size := uint64(Q4_K.RowBytes(each))
	r := newRaw()
	for i := range 8 {
		r.tensor(fmt.Sprintf("blk.%d.ffn_gate_exps.weight", i), Q4_K, uint64(i)*size, 0, 256, 256<<20)
	}
	header := r.header()
	path := filepath.Join(t.TempDir(), "hole.gguf")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Write(header)
	require.NoError(t, err)
	if err := file.Truncate(int64(len(header)) + 8*int64(size)); err != nil {
		t.Skip("NOT CHECKED: the file system takes no file of 300 GB: ", err)
	}
	var f *File
	spent := allocatedBytes(func() { f, err = Open(path) })
	require.NoError(t, err)
	defer f.Close()
	require.Len(t, f.Tensors(), 8)
	require.Less(t, spent, uint64(256<<10))
	require.Less(t, resident(t, f.Mappings()[0]), hugePage+1<<20)
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err == nil {
		require.Contains(t, strings.Fields(ofMapping(t, f.Mappings()[0], "VmFlags:")), "hg", "huge pages are asked for")
	}

	// One byte of the last tensor brings in one more huge page at most.
	last := f.Tensors()[7].Data
	require.Zero(t, last[len(last)-1])
	require.Less(t, resident(t, f.Mappings()[0]), 2*hugePage+4<<20)
}
