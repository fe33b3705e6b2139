package helper

import "syscall"

// attributes of a helper: a process group of its own, so that an interrupt from
// the terminal reaches the server only, which ends its helpers in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// quiet makes sends on a socket whose other end is gone fail without a SIGPIPE.
func quiet(fd int) {
	// An error leaves the signal, which Go's runtime ignores on this descriptor.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_NOSIGPIPE, 1)
}
