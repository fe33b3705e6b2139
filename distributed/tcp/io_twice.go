//go:build !linux && !darwin

package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// writeNow writes head and then body, which may be empty, in two calls: package
// unix has no writev for this system.
func writeNow(fd uintptr, _ *vector, head, body []byte) (int, syscall.Errno) {
	n, err := unix.Write(int(fd), head)
	if err != nil || n < len(head) || len(body) == 0 {
		return n, errno(err)
	}
	m, err := unix.Write(int(fd), body)
	if err != nil { // a lasting error is returned by the next call too
		return n, 0
	}
	return n + m, 0
}
