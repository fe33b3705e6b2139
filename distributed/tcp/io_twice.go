//go:build !linux && !darwin

package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// writeNow writes head and then body, which may be empty. It makes two calls,
// because package unix has no writev for this system.
func writeNow(fd uintptr, _ *vector, head, body []byte) (int, syscall.Errno) {
	n, err := unix.Write(int(fd), head)
	if err != nil || n < len(head) || len(body) == 0 {
		return n, errno(err)
	}
	m, err := unix.Write(int(fd), body)
	if err != nil { // the next call returns a lasting error again
		return n, 0
	}
	return n + m, 0
}
