package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
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

// --- Linux ------------------------------------------------------------------

const sysfsDevices = "sys/class/infiniband"

func (p *railsProbe) linux(ctx context.Context, r *railsReport) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	text, speeds, err := p.sysfs(ctx)
	if err != nil {
		r.note("/%s: %v", sysfsDevices, err)
	}
	interfaces, err := p.interfaces()
	if err != nil {
		r.note("the network interfaces: %v", err)
	}
	devices := matrix.ParseSysfs(text)
	for i, d := range devices {
		devices[i].Speed = speeds[d.Name]
	}
	r.Host = matrix.LinuxHost(p.name, devices, nil, interfaces)
	if len(devices) == 0 && len(r.Notes) == 0 {
		r.note("the kernel knows no RDMA device: /%s is empty; load the driver of the card (modprobe mlx5_ib), or for trials without a card rdma_rxe (rdma link add rxe0 type rxe netdev eth0)", sysfsDevices)
	}
}

// sysfs lists the files of the devices in the form that matrix.ParseSysfs reads,
// and the speed of each device. ctx is looked at before each file.
func (p *railsProbe) sysfs(ctx context.Context) (text string, speeds map[string]string, err error) {
	var b strings.Builder
	file := func(name string) string {
		if ctx.Err() != nil {
			err = fmt.Errorf("not read within %v", p.limit)
			return ""
		}
		// A file of an unset GID cannot be read: what is missing is not there.
		data, _ := fs.ReadFile(p.root, name)
		return strings.TrimSpace(string(data))
	}
	list := func(name string) (names []string) {
		entries, _ := fs.ReadDir(p.root, name)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	add := func(name string) {
		if content := file(name); content != "" {
			fmt.Fprintf(&b, "/%s:%s\n", name, content)
		}
	}
	entries, derr := fs.ReadDir(p.root, sysfsDevices)
	if derr != nil && !errors.Is(derr, fs.ErrNotExist) {
		return "", nil, derr
	}
	speeds = map[string]string{}
	for _, e := range entries {
		device := path.Join(sysfsDevices, e.Name())
		port := path.Join(device, "ports/1")
		for _, name := range []string{"node_guid", "parent"} {
			add(path.Join(device, name))
		}
		for _, name := range []string{"state", "link_layer"} {
			add(path.Join(port, name))
		}
		for _, dir := range []string{"gids", "gid_attrs/ndevs"} {
			for _, name := range list(path.Join(port, dir)) {
				add(path.Join(port, dir, name))
			}
		}
		for _, name := range list(path.Join(device, "device/net")) {
			fmt.Fprintf(&b, "/%s\n", path.Join(device, "device/net", name))
		}
		speeds[e.Name()] = file(path.Join(port, "rate"))
	}
	return b.String(), speeds, err
}

// hostInterfaces asks the kernel for the network interfaces and their addresses.
func hostInterfaces() ([]matrix.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []matrix.Interface
	for _, i := range all {
		x := matrix.Interface{Name: i.Name, MAC: i.HardwareAddr.String()}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			addr, ok := netip.AddrFromSlice(n.IP)
			bits, _ := n.Mask.Size()
			if prefix := netip.PrefixFrom(addr.Unmap(), bits); ok && prefix.IsValid() {
				x.Addrs = append(x.Addrs, prefix)
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// verbsLibrary loads the verbs library for a list of its devices. A library
// without a device is none that fails.
func verbsLibrary() (string, []string, error) {
	l, err := verbs.Open("")
	if err != nil {
		return "", nil, err
	}
	devices, err := l.Devices()
	if err != nil {
		return l.Path(), nil, errors.Join(err, l.Close())
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return l.Path(), names, l.Close()
}

// --- macOS ------------------------------------------------------------------

// macQuestions are the programs of a Mac that know something. rdma_ctl and
// ibv_devices are there from macOS 26.2 on.
var macQuestions = [][]string{
	{"rdma_ctl", "status"},
	{"ibv_devices"},
	{"ibv_devinfo", "-v"},
	{"networksetup", "-listallhardwareports"},
	{"system_profiler", "SPThunderboltDataType", "-json"},
	{"ifconfig", "-a"},
}

func (p *railsProbe) mac(ctx context.Context, r *railsReport) {
	said, failed := map[string]string{}, map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, q := range macQuestions {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, p.limit)
			defer cancel()
			text, err := p.run(ctx, q[0], q[1:]...)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("no answer within %v", p.limit)
			}
			mu.Lock()
			defer mu.Unlock()
			said[q[0]] = text
			if err != nil {
				failed[q[0]] = err
			}
		})
	}
	wg.Wait()
	sockets, err := matrix.ParseThunderbolt([]byte(said["system_profiler"]))
	if err != nil && failed["system_profiler"] == nil {
		failed["system_profiler"] = err
	}
	interfaces := matrix.ParseIfconfig(said["ifconfig"])
	r.Host = matrix.MacHost(p.name, matrix.ParseIBVDevices(said["ibv_devices"]), matrix.ParseIBVDevinfo(said["ibv_devinfo"]),
		matrix.ParseHardwarePorts(said["networksetup"]), sockets, interfaces)
	r.macNotes(said, failed, interfaces)
}

// macNotes says what stands against RDMA on a Mac.
func (r *railsReport) macNotes(said map[string]string, failed map[string]error, interfaces []matrix.Interface) {
	disabled := strings.Contains(strings.ToLower(said["rdma_ctl"]), "disabled")
	switch {
	case errors.Is(failed["ibv_devices"], exec.ErrNotFound):
		r.note("this Mac has no ibv_devices; RDMA over Thunderbolt needs macOS 26.2 or later and Thunderbolt 5")
		return
	case disabled:
		r.note("RDMA is disabled; start the Mac in Recovery, run rdma_ctl enable in its Terminal, and restart")
	case len(r.Devices) == 0 && failed["ibv_devices"] == nil:
		r.note("ibv_devices lists no device; start the Mac in Recovery, run rdma_ctl enable in its Terminal, and restart; its ports must be Thunderbolt 5")
	}
	for _, q := range macQuestions {
		if err := failed[q[0]]; err != nil && q[0] != "rdma_ctl" {
			r.note("%s: %v", strings.Join(q, " "), err)
		}
	}
	for _, bridge := range interfaces {
		for _, d := range r.Devices {
			if slices.Contains(bridge.Members, d.Interface) {
				r.note("%s: its interface %s is a member of %s; take it out (System Settings, Network, Thunderbolt Bridge) or give %s an IPv4 address of its own: a bridge's address does not count for RDMA, and cables in a circle make a bridge loop", d.Name, d.Interface, bridge.Name, d.Interface)
			}
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
