//go:build !linux

package tcp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// vector holds the buffers of one write.
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
