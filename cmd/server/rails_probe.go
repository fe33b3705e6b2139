package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed/rdma/matrix"
)

// railsProbe asks a host for its RDMA devices.
type railsProbe struct {
	system string        // as runtime.GOOS
	name   string        // of the host
	limit  time.Duration // of each question
	root   fs.FS         // the files of the host, without the leading /
	// run runs a program of the host and gives what it prints.
	run        func(ctx context.Context, name string, args ...string) (string, error)
	interfaces func() ([]matrix.Interface, error)
	// library loads the verbs library and lists its devices.
	library func() (path string, devices []string, err error)
}

// hostProbe asks this host.
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

// report asks everything. What cannot be found out is a note.
func (p *railsProbe) report(ctx context.Context) railsReport {
	r := railsReport{Host: matrix.Host{Name: p.name}, System: p.system}
	switch p.system {
	case "linux":
		p.linux(ctx, &r)
	case "darwin":
		p.mac(ctx, &r)
	default:
		r.note("no RDMA on %s; take --transport tcp", p.system)
		return r
	}
	if len(r.Devices) == 0 {
		r.Devices = []matrix.Device{}
		return r
	}
	if !slices.ContainsFunc(r.Devices, func(d matrix.Device) bool { return d.Active() }) {
		r.note("no device is ACTIVE; look at the cables, and whether RDMA is enabled at both ends")
	}
	p.compare(&r)
	return r
}

func (r *railsReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// compare looks whether the verbs library is there and knows the devices.
func (p *railsProbe) compare(r *railsReport) {
	file, names, err := p.library()
	r.Library = file
	if err != nil {
		r.note("the verbs library: %v", err)
		return
	}
	for _, d := range r.Devices {
		if !slices.Contains(names, d.Name) {
			r.note("%s does not list %s, only [%s]; install the driver of the device for it (Debian: ibverbs-providers)", file, d.Name, strings.Join(names, ", "))
		}
	}
}

// maxProgramOutput is more than any of the programs prints.
const maxProgramOutput = 8 << 20

// runProgram runs a program until ctx ends and gives its standard output; the
// error has the first line of what it complained of.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second // for what it started itself
	var out, complaint capped
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	if line, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n"); err != nil && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return out.String(), err
}

// capped keeps the first maxProgramOutput bytes.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(b []byte) (int, error) {
	c.kept.Write(b[:min(len(b), maxProgramOutput-c.kept.Len())])
	return len(b), nil
}

func (c *capped) String() string { return c.kept.String() }
