//go:build !linux

package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// setBuffers asks for the sizes of the socket buffers. The system may reduce
// them; the connection still works.
func setBuffers(fd, size int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

// setUserTimeout does nothing, because this system has no such option: only
// keepalive probes notice a cut link.
func setUserTimeout(int, time.Duration) {}

func retransmits(int) int64 { return -1 }
