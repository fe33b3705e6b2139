//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/tests/whole"
)

// macPage is the size of a page on Apple silicon: the GPU takes memory in whole ones.
const macPage = 16 << 10

// padded is the model small with some more bytes of metadata before its tensors.
func padded(t *testing.T, more int) *gguf.File {
	t.Helper()
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	whole.Shrink(&c)
	w, err := c.Writer()
	require.NoError(t, err)
	require.NoError(t, w.Put("test.padding", strings.Repeat("x", more)))
	path := filepath.Join(t.TempDir(), "padded.gguf")
	require.NoError(t, w.WriteFile(path))
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// TestTensorsAnywhereInAPage: files align tensors to 32 bytes, and the GPU takes
// memory in pages of 16 KiB. Wherever the tensors of a file begin in their pages, the
// logits have the same bits.
func TestTensorsAnywhereInAPage(t *testing.T) {
	var want [][]float32
	seen := map[uintptr]bool{}
	for _, more := range []int{0, 32, 4096 + 64, macPage - 32} {
		f := padded(t, more)
		inPage := 0
		for _, mapping := range f.Mappings() {
			require.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))%macPage, "a mapping begins within a page")
		}
		first := f.Tensors()[0]
		place := uintptr(unsafe.Pointer(unsafe.SliceData(first.Data))) % macPage
		require.False(t, seen[place], "the tensors are where they were")
		seen[place] = true
		for _, x := range f.Tensors() {
			if uintptr(unsafe.Pointer(unsafe.SliceData(x.Data)))%macPage != 0 {
				inPage++
			}
		}
		require.Greater(t, inPage, len(f.Tensors())/2)
		got, err := whole.Run(t, whole.Open(t, f, openMetal(t), decoder.OpenOptions{MaxTokens: 64}), whole.RandomIDs(256, 24), 20)
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.True(t, whole.Same(want, got), "%d bytes more before the tensors change the logits", more)
	}
}
