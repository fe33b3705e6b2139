package rails

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"strings"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

const sysfsDevices = "sys/class/infiniband"

// linux fills in the devices of a Linux host.
func (p *probe) linux(ctx context.Context, r *Report) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	text, speeds, err := p.sysfs(ctx)
	if err != nil {
		r.note("/%s: %v", sysfsDevices, err)
	}
	interfaces, err := p.interfaces()
	if err != nil {
		r.note("network interfaces: %v", err)
	}
	devices := matrix.ParseSysfs(text)
	for i, d := range devices {
		devices[i].Speed = speeds[d.Name]
	}
	r.Host = matrix.LinuxHost(p.name, devices, nil, interfaces)
	if len(devices) == 0 && len(r.Notes) == 0 {
		r.note("the kernel has no RDMA device: /%s is empty; load the driver of the card (modprobe mlx5_ib), or to experiment without a card use rdma_rxe (rdma link add rxe0 type rxe netdev eth0)", sysfsDevices)
	}
}

// sysfs lists the files of the devices in the format of matrix.ParseSysfs, and
// the speed of each device. It checks ctx before each file.
func (p *probe) sysfs(ctx context.Context) (text string, speeds map[string]string, err error) {
	var b strings.Builder
	file := func(name string) string {
		if ctx.Err() != nil {
			err = fmt.Errorf("reading took longer than %v", p.limit)
			return ""
		}
		// The file of an unset GID cannot be read, which is no error.
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

// hostInterfaces returns the network interfaces of this host and their addresses.
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
			continue // it has been removed in the meantime
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

// verbsLibrary loads the verbs library and lists its devices. Having none is not
// an error.
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
