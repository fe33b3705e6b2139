package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// mostLine is the most bytes of a line of a log; of a longer one, pieces are shown.
const mostLine = 8000

// lastLines is how long the rest of a log is waited for once its process has ended, because
// a process that it has left behind may hold its output.
const lastLines = time.Second

// process is a rank's, in a process group of its own, so that Ctrl-C in the terminal
// reaches this program alone, which then stops the ranks.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	keys    io.WriteCloser // its standard input, if a terminal lies between; else nil
	shown   chan struct{}  // closed when its output has been shown
}

// startProcess starts a command and shows the lines of its output. With keys it can be sent
// Ctrl-C over its standard input.
func startProcess(args []string, keys bool, show func(line string)) (*process, error) {
	p := &process{cmd: exec.Command(args[0], args[1:]...), started: time.Now(), shown: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if keys {
		p.keys, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[0], errors.Join(err, out.Close()))
	}
	go func() {
		defer close(p.shown)
		defer out.Close()
		lines := bufio.NewReaderSize(out, mostLine)
		for {
			line, _, err := lines.ReadLine()
			if err != nil {
				return
			}
			show(string(line))
		}
	}()
	return p, nil
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait() int {
	err := p.cmd.Wait()
	late := time.NewTimer(lastLines)
	defer late.Stop()
	select {
	case <-p.shown:
	case <-late.C:
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return bySignal + int(status.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		return 1
	}
	return 0
}

// signal sends a signal to the process and to all that it has started.
func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // it may have ended just now
}

// interrupt is Ctrl-C.
func (p *process) interrupt() {
	if p.keys != nil {
		press(p.keys)
		return
	}
	p.signal(syscall.SIGINT)
}
