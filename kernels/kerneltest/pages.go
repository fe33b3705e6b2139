package kerneltest

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// mapPage is the page of Apple silicon, the largest of the systems that the backends are
// for. Memory begins and ends with whole ones, because its GPU takes nothing else.
const mapPage = 16 << 10

// Pages returns n zeroed bytes for Backend.Map, which begin at a multiple of 16 KiB as
// a mapped file does on a Mac; the pages are readable to their end. free unmaps them.
func Pages(t testing.TB, n int) (mem []byte, free func()) {
	t.Helper()
	whole := (n + mapPage - 1) / mapPage * mapPage
	room, err := syscall.Mmap(-1, 0, whole+mapPage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(room))) % mapPage)
	return room[skip : skip+n : skip+whole], func() {
		require.NoError(t, syscall.Munmap(room))
	}
}
