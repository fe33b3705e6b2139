package helper

import "syscall"

// attributes of a helper: a process group of its own, so that an interrupt from
// the terminal reaches the server only, which ends its helpers in order; and a
// signal when the server dies, in addition to the end of its sockets.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// quiet is for systems that cannot say at each send that it raises no SIGPIPE.
func quiet(int) {}
