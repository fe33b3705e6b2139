package tcp

import (
	"syscall"
	"unsafe"
)

// These calls bypass the Go scheduler, because notifying it costs as much as
// the call itself. They may, because the descriptors are non-blocking and the
// calls return in microseconds.

// vector holds the buffers of one write.
type vector [2]syscall.Iovec

func readNow(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), e
}

// writeNow writes head and then body, which may be empty, in one call.
func writeNow(fd uintptr, v *vector, head, body []byte) (int, syscall.Errno) {
	v[0].Base, v[1].Base = unsafe.SliceData(head), unsafe.SliceData(body)
	v[0].SetLen(len(head))
	v[1].SetLen(len(body))
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(v)), 2)
	v[0].Base, v[1].Base = nil, nil
	return int(n), e
}
