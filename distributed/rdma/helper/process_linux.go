package helper

import "syscall"

// attributes returns the attributes of a helper. It has its own process group,
// so that an interrupt from the terminal reaches only the server, which ends
// its helpers in order. It gets a signal when the server dies, in addition to
// the end of its sockets.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// quiet does nothing, because this system can suppress SIGPIPE for each send.
func quiet(int) {}
