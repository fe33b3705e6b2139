//go:build !linux

package tcp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// vector is what writes gives to the kernel.
type vector [2][]byte

func errno(err error) syscall.Errno {
	var e syscall.Errno
	if err != nil && !errors.As(err, &e) {
		e = syscall.EIO
	}
	return e
}

func readNow(fd uintptr, b []byte) (int, syscall.Errno) {
	n, err := unix.Read(int(fd), b)
	return n, errno(err)
}

// writeNow writes head and then body, which may be empty.
func writeNow(fd uintptr, v *vector, head, body []byte) (int, syscall.Errno) {
	v[0], v[1] = head, body
	n, err := unix.Writev(int(fd), v[:])
	v[0], v[1] = nil, nil
	return n, errno(err)
}
