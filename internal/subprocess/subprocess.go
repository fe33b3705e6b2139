// Package subprocess runs programs of the host and returns what they print.
package subprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"ringmaster/internal/safetext"
)

// maxOutput bounds how much of a program's output is kept, in bytes.
const maxOutput = 8 << 20

// endGrace is how long a program may take to end after SIGTERM.
const endGrace = time.Second

// ErrLeftBehind is the error of a program that does not end on SIGTERM either.
var ErrLeftBehind = errors.New("it does not end on SIGTERM and is left running")

// Run runs a program, at most until ctx ends, and returns its standard output. An error
// contains the first line of its standard error. At the end of ctx the program gets
// SIGTERM, never SIGKILL: with Apple's provider a process that is killed while it holds a
// device leaves protection domains and queue pairs used up until a power cycle. A program
// that does not end is left behind: ErrLeftBehind.
func Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, errOut cappedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		timer := time.NewTimer(endGrace)
		defer timer.Stop()
		select {
		case err = <-ended:
		case <-timer.C:
			return "", fmt.Errorf("process %d: %w", cmd.Process.Pid, ErrLeftBehind)
		}
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(errOut.String()), "\n"); err != nil && line != "" {
		err = fmt.Errorf("%w: %s", err, safetext.Line(line, safetext.Evidence))
	}
	return out.String(), err
}

// cappedBuffer keeps the first maxOutput bytes that are written to it.
type cappedBuffer struct{ kept bytes.Buffer }

func (c *cappedBuffer) Write(b []byte) (int, error) {
	c.kept.Write(b[:min(len(b), maxOutput-c.kept.Len())])
	return len(b), nil
}

func (c *cappedBuffer) String() string { return c.kept.String() }
