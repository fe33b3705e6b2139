//go:build cgo && (linux || darwin)

package helper

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
#include "rm_shared.h"
*/
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"ringmaster/distributed/rdma/verbs"
)

// newShared makes a nameless file of n bytes.
func newShared(n int) (*os.File, error) {
	fd := int(C.rmh_shared(C.size_t(n)))
	if fd < 0 {
		return nil, fmt.Errorf("shared memory of %d bytes: %w", n, syscall.Errno(-fd))
	}
	return os.NewFile(uintptr(fd), "shared memory"), nil
}

// mapping is a shared file in the memory of this process. It is aligned and does
// not cross a 4 GiB boundary, because registered memory must not.
type mapping struct {
	whole []byte // the reserved range
	mem   []byte
}

// mapShared maps n bytes of a file.
func mapShared(f *os.File, n int) (mapping, error) {
	for _, size := range verbs.Reservations(n) {
		whole, err := syscall.Mmap(-1, 0, size, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return mapping{}, fmt.Errorf("reserving %d bytes: %w", size, err)
		}
		m := mapping{whole: whole}
		if off, ok := verbs.Place(whole, n); ok {
			m.mem = whole[off : off+n : off+n]
			if rc := C.rmh_map_at(C.int(f.Fd()), unsafe.Pointer(&m.mem[0]), C.size_t(n)); rc == 0 {
				return m, nil
			} else if err = m.unmap(); err == nil {
				err = syscall.Errno(rc)
			}
			return mapping{}, fmt.Errorf("mapping %d shared bytes: %w", n, err)
		}
		if err := m.unmap(); err != nil {
			return mapping{}, fmt.Errorf("unmapping: %w", err)
		}
	}
	return mapping{}, fmt.Errorf("no address range for %d bytes that does not cross a 4 GiB boundary", n)
}

func (m *mapping) unmap() error {
	whole := m.whole
	m.whole, m.mem = nil, nil
	if whole == nil {
		return nil
	}
	return syscall.Munmap(whole)
}

func (m *mapping) at() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.mem)) }

// plainEnd is described in rm_shared.h.
func plainEnd() error { return errnoOf(C.rmh_plain_end()) }
