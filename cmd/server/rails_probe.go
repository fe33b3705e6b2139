package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/safetext"
)

// railsProbe finds the RDMA devices of a host. The functions stand for what
// depends on the host; tests replace them.
type railsProbe struct {
	system string        // as runtime.GOOS
	name   string        // of the host
	limit  time.Duration // for reading sysfs and for each program
	root   fs.FS         // the file system of the host, paths without the leading /
	// run runs a program of the host and returns what it prints.
	run        func(ctx context.Context, name string, args ...string) (string, error)
	interfaces func() ([]matrix.Interface, error)
	// library loads the verbs library and lists its devices.
	library func() (path string, devices []string, err error)
}

// hostProbe probes this host.
func hostProbe() *railsProbe {
	name, err := os.Hostname()
	if err != nil {
		name = "this host"
	}
	return &railsProbe{
		system: runtime.GOOS, name: name, limit: 20 * time.Second, root: os.DirFS("/"),
		run: runProgram, interfaces: hostInterfaces, library: verbsLibrary,
	}
}

// report probes the host. What cannot be determined becomes a note.
func (p *railsProbe) report(ctx context.Context) railsReport {
	r := railsReport{Host: matrix.Host{Name: p.name}, System: p.system}
	switch p.system {
	case "linux":
		p.linux(ctx, &r)
	case "darwin":
		p.mac(ctx, &r)
	default:
		r.note("RDMA is not supported on %s; use --transport tcp", p.system)
		return r
	}
	if len(r.Devices) == 0 {
		r.Devices = []matrix.Device{}
		return r
	}
	if !slices.ContainsFunc(r.Devices, func(d matrix.Device) bool { return d.Active() }) {
		r.note("no device is ACTIVE; check the cables, and that RDMA is enabled on both hosts")
	}
	p.checkLibrary(&r)
	return r
}

func (r *railsReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// checkLibrary notes if the verbs library cannot be loaded or does not list all
// the devices.
func (p *railsProbe) checkLibrary(r *railsReport) {
	file, names, err := p.library()
	r.Library = file
	if err != nil {
		r.note("verbs library: %v", err)
		return
	}
	for _, d := range r.Devices {
		if !slices.Contains(names, d.Name) {
			r.note("%s does not list %s, only [%s]; install its userspace driver (Debian: ibverbs-providers)", file, d.Name, strings.Join(names, ", "))
		}
	}
}

// maxProgramOutput is more bytes than any of the programs prints.
const maxProgramOutput = 8 << 20

// endGrace is how long a program may take to end after SIGTERM.
const endGrace = time.Second

// errLeftBehind is the error of a program that does not end on SIGTERM either.
var errLeftBehind = errors.New("it does not end on SIGTERM and is left running")

// runProgram runs a program, at most until ctx ends, and returns its standard
// output. An error contains the first line of its standard error. The program gets
// SIGTERM then, never SIGKILL: with Apple's provider a process that is killed
// while it holds a device leaves protection domains and queue pairs used up until
// a power cycle. One that does not end is left behind: errLeftBehind.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
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
			return "", fmt.Errorf("process %d: %w", cmd.Process.Pid, errLeftBehind)
		}
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(errOut.String()), "\n"); err != nil && line != "" {
		err = fmt.Errorf("%w: %s", err, safetext.Line(line, safetext.Evidence))
	}
	return out.String(), err
}

// cappedBuffer keeps the first maxProgramOutput bytes that are written to it.
type cappedBuffer struct{ kept bytes.Buffer }

func (c *cappedBuffer) Write(b []byte) (int, error) {
	c.kept.Write(b[:min(len(b), maxProgramOutput-c.kept.Len())])
	return len(b), nil
}

func (c *cappedBuffer) String() string { return c.kept.String() }
