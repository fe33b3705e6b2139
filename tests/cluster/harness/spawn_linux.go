package harness

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner runs functions on one thread that lives as long as this process, because the
// kernel sends a child its death signal when the thread that started it exits.
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

// spawn starts cmd in its own process group. The child dies with this process, even
// if that is killed.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := make(chan error, 1)
	spawner() <- func() { err <- cmd.Start() }
	return <-err
}
