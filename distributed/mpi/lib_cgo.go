//go:build cgo && unix && !static

package mpi

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "rm_mpi.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// built reports whether this program can load an MPI library.
const built = true

// The results of progress; see rm_mpi.h.
const (
	progressDone    = C.RM_MPI_DONE
	progressStopped = C.RM_MPI_STOPPED
	progressLate    = C.RM_MPI_LATE
	progressWatched = C.RM_MPI_WATCHED
	progressError   = C.RM_MPI_ERROR
)

// A message has the layout of struct rm_msg; if not, this does not compile.
var (
	_ [unsafe.Sizeof(message{}) - C.sizeof_struct_rm_msg]struct{}
	_ [C.sizeof_struct_rm_msg - unsafe.Sizeof(message{})]struct{}
)

func lastError() error { return errors.New(C.GoString(C.rm_mpi_text())) }

func fromCode(code C.int) error {
	if code != 0 {
		return lastError()
	}
	return nil
}

// loadLibrary loads a library; found reports whether one of this name exists.
func loadLibrary(name string) (version string, found bool, err error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	var text [C.RM_MPI_TEXT]C.char
	code := C.rm_mpi_load(n, &text[0])
	said := C.GoString(&text[0])
	switch code {
	case 0:
		return said, true, nil
	case C.RM_MPI_FOREIGN:
		return "", true, errors.New(said)
	}
	return "", false, errors.New(said)
}

func libInit() (rank, size int, err error) {
	var r, s C.int
	err = fromCode(C.rm_mpi_init(&r, &s))
	return int(r), int(s), err
}

func libHost() (string, error) {
	var text [C.RM_MPI_TEXT]C.char
	err := fromCode(C.rm_mpi_host(&text[0]))
	return C.GoString(&text[0]), err
}

func libFinalize() error { return fromCode(C.rm_mpi_finalize()) }

func libDup(comm unsafe.Pointer, made *unsafe.Pointer, m *message) error {
	return fromCode(C.rm_mpi_dup(comm, made, (*C.struct_rm_msg)(unsafe.Pointer(m))))
}

func libQuiet(comm unsafe.Pointer) error { return fromCode(C.rm_mpi_quiet(comm)) }

func libCancel(m *message) error {
	return fromCode(C.rm_mpi_cancel((*C.struct_rm_msg)(unsafe.Pointer(m))))
}

func libIdle(comm unsafe.Pointer) error { return fromCode(C.rm_mpi_idle(comm)) }

// libProgress calls rm_mpi_progress; times are in nanoseconds.
func libProgress(comm unsafe.Pointer, m []message, watch *message, stop *int32, any bool, spin, limit int64) int {
	one := C.int(0)
	if any {
		one = 1
	}
	return int(C.rm_mpi_progress(comm, (*C.struct_rm_msg)(unsafe.Pointer(unsafe.SliceData(m))), C.int(len(m)),
		(*C.struct_rm_msg)(unsafe.Pointer(watch)), (*C.int32_t)(unsafe.Pointer(stop)), one, C.int64_t(spin), C.int64_t(limit)))
}

// allocate returns zeroed memory outside Go's heap; it panics if memory has run
// out.
func allocate(n int) unsafe.Pointer {
	p := C.calloc(1, C.size_t(max(n, 1)))
	if p == nil {
		panic("mpi: no memory")
	}
	return p
}

func free(p unsafe.Pointer) { C.free(p) }
