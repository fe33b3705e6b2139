package tcp

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setBuffers sets the sizes of the socket buffers. It sets a size only if the
// system allows all of it, because an explicit size stops Linux from growing
// the buffer by itself.
func setBuffers(fd, size int) {
	if kernelMax("/proc/sys/net/core/rmem_max") >= size {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	}
	if kernelMax("/proc/sys/net/core/wmem_max") >= size {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
}

func kernelMax(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

func setUserTimeout(fd int, d time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// retransmits is how many segments a connection has sent again; -1 if unknown.
func retransmits(fd int) int64 {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return -1
	}
	return int64(info.Total_retrans)
}
