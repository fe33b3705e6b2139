//go:build !linux

package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// setBuffers asks for the sizes of the socket buffers. The system may reduce
// them; the connection works all the same.
func setBuffers(fd, size int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

// setUserTimeout does nothing: on this system only keepalive probes notice a
// cut link.
func setUserTimeout(int, time.Duration) {}

func retransmits(int) int64 { return -1 }
