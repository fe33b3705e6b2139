//go:build !linux

package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// What the system does not allow it cuts down; the connection works all the same.
func setBuffers(fd, size int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

// Only keepalive probes notice a cut link here.
func setUserTimeout(int, time.Duration) {}
