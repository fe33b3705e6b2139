//go:build unix && !linux

package harness

import (
	"os/exec"
	"syscall"
)

// spawn starts cmd in a process group of its own.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
