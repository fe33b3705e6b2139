package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// writeNow writes head and then body, which may be empty, in one call.
func writeNow(fd uintptr, v *vector, head, body []byte) (int, syscall.Errno) {
	v[0], v[1] = head, body
	n, err := unix.Writev(int(fd), v[:])
	v[0], v[1] = nil, nil
	return n, errno(err)
}
