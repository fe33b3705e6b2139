//go:build !cgo || !unix || static

package mpi

import (
	"errors"
	"unsafe"
)

// Without cgo, or in a static program, no library can be loaded: Open fails, so nothing
// else is called.

const built = false

const (
	progressDone = iota
	progressStopped
	progressLate
	progressWatched
	progressError
)

var errNotBuilt = errors.New("this build cannot load libraries")

func lastError() error                                       { return errNotBuilt }
func loadLibrary(string) (string, bool, error)               { return "", false, errNotBuilt }
func libInit() (rank, size int, err error)                   { return 0, 0, errNotBuilt }
func libHost() (string, error)                               { return "", errNotBuilt }
func libFinalize() error                                     { return errNotBuilt }
func libDup(unsafe.Pointer, *unsafe.Pointer, *message) error { return errNotBuilt }
func libQuiet(unsafe.Pointer) error                          { return errNotBuilt }
func libCancel(*message) error                               { return errNotBuilt }
func libIdle(unsafe.Pointer) error                           { return errNotBuilt }
func allocate(n int) unsafe.Pointer                          { return unsafe.Pointer(unsafe.SliceData(make([]byte, n))) }
func free(unsafe.Pointer)                                    {}
func libProgress(_ unsafe.Pointer, _ []message, _ *message, _ *int32, _ bool, _, _ int64) int {
	return progressError
}
