//go:build unix && !linux

package harness

import (
	"os/exec"
	"syscall"
)

// spawn starts cmd in its own process group.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
