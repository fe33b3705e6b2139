// Package rails finds the RDMA devices of hosts and the cables between them. Here reports
// the devices of this host without opening them; MakePlan finds from the reports of all
// hosts which devices are the two ends of a cable, and writes the device matrix.
package rails

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/subprocess"
)

// probe finds the RDMA devices of a host. The functions stand for what
// depends on the host; tests replace them.
type probe struct {
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

// Here reports the RDMA devices of this host. name replaces its host name in the report
// unless it is empty. What cannot be determined becomes a note.
func Here(ctx context.Context, name string) Report {
	return host(name).report(ctx)
}

// host probes this host.
func host(name string) *probe {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			name = "this host"
		}
	}
	return &probe{
		system: runtime.GOOS, name: name, limit: 20 * time.Second, root: os.DirFS("/"),
		run: subprocess.Run, interfaces: hostInterfaces, library: verbsLibrary,
	}
}

// report probes the host. What cannot be determined becomes a note.
func (p *probe) report(ctx context.Context) Report {
	r := Report{Host: matrix.Host{Name: p.name}, System: p.system}
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

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// checkLibrary notes if the verbs library cannot be loaded or does not list all
// the devices.
func (p *probe) checkLibrary(r *Report) {
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
