//go:build linux && metalsim

package gguf

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// macPage is the size of a page on Apple silicon. Mappings there begin at its multiples
// and end with whole pages, because its GPU takes nothing else. So do those for the
// software Metal device.
const macPage = 16 << 10

// mapPages maps n bytes of a file, or memory for fd -1, in pages of macPage bytes.
func mapPages(fd, n, prot, flags int) ([]byte, error) {
	whole := pagesOf(n)
	room, err := unix.MmapPtr(-1, 0, nil, whole+macPage, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(room) % macPage
	base := unsafe.Add(room, before)
	if _, err := unix.MmapPtr(fd, 0, base, uintptr(n), prot, flags|unix.MAP_FIXED); err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(room, whole+macPage))
	}
	if before > 0 {
		err = unix.MunmapPtr(room, before)
	}
	if err := errors.Join(err, unix.MunmapPtr(unsafe.Add(base, whole), macPage-before)); err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(base, whole))
	}
	return unsafe.Slice((*byte)(base), n), nil
}

// unmapFile unmaps what mapFile or mapFilled returned.
func unmapFile(data []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(data)), pagesOf(len(data)))
}

// pagesOf is n bytes in whole pages.
func pagesOf(n int) uintptr { return (uintptr(n) + macPage - 1) / macPage * macPage }
