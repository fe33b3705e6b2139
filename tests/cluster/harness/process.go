//go:build unix

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// endGrace is how long to wait for the output of a killed process.
const endGrace = 5 * time.Second

// Process is a running program in its own process group.
type Process struct {
	Log  *Log // its stdout and stderr
	Args []string

	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
}

// StartProcess runs argv with env added to a clean environment, without the
// RINGMASTER_, JACCL_ and MLX_ variables of the caller.
func StartProcess(env []string, argv ...string) (*Process, error) {
	p := &Process{Log: NewLog(), Args: argv, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(CleanEnvironment(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	p.cmd.WaitDelay = endGrace
	if err := spawn(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", strings.Join(argv, " "), err)
	}
	go func() {
		_ = p.cmd.Wait() // Process.Wait reads the state instead
		close(p.done)
	}()
	return p, nil
}

// CleanEnvironment returns the environment without the variables that the program
// reads as flags.
func CleanEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "RINGMASTER_") && !strings.HasPrefix(kv, "JACCL_") && !strings.HasPrefix(kv, "MLX_") {
			env = append(env, kv)
		}
	}
	return append(env, "NO_COLOR=1")
}

// Pid returns the id of the process and of its process group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process group.
func (p *Process) Signal(s syscall.Signal) error {
	err := syscall.Kill(-p.Pid(), s)
	if err != nil {
		return fmt.Errorf("%v to process group %d: %w", s, p.Pid(), err)
	}
	return nil
}

// Running reports whether the process has not exited.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the exit and returns the exit code, or 128 plus the signal, as a shell
// does. If ctx ends first it ends the process by SIGQUIT, so that its log shows what its
// goroutines wait for.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d is still running: %w\n%s", p.Pid(), context.Cause(ctx), p.quit())
	}
	w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// quit ends a hanging process and returns what its threads were doing.
func (p *Process) quit() string {
	doing := threads(p.Pid())
	if err := syscall.Kill(p.Pid(), syscall.SIGQUIT); err != nil {
		return doing + err.Error()
	}
	select {
	case <-p.done:
	case <-time.After(endGrace):
		doing += "it does not answer SIGQUIT"
	}
	return doing
}

// GroupGone reports whether no process of the group is left.
func (p *Process) GroupGone() bool { return errors.Is(syscall.Kill(-p.Pid(), 0), syscall.ESRCH) }

// End kills the group and waits for the process. It may be called again.
func (p *Process) End() {
	if !p.GroupGone() {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // ends a stopped process too
	}
	<-p.done
}
