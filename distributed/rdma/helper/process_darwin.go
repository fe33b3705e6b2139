package helper

import "syscall"

// attributes returns the attributes of a helper. It has its own process group,
// so that an interrupt from the terminal reaches only the server, which ends
// its helpers in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// quiet makes sends on a socket without a peer fail without a SIGPIPE.
func quiet(fd int) {
	// An error is harmless, because Go's runtime ignores the signal on this
	// descriptor.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_NOSIGPIPE, 1)
}
