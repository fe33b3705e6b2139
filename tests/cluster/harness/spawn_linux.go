package harness

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner runs what it is given on one thread that lives as long as this
// process: the kernel sends the death signal of a child when the thread ends
// that started it.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn starts cmd in a process group of its own; it dies with this process,
// also when that is killed.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := make(chan error, 1)
	spawner() <- func() { err <- cmd.Start() }
	return <-err
}
