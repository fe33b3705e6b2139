package rdma

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

// device is an open device of this rank. It stays open for the life of the
// transport: some drivers lose protection domains when they are freed and made
// again.
type device struct {
	name string
	ctx  *verbs.Context
	pd   *verbs.PD
	attr verbs.DeviceAttr
	port verbs.PortAttr
	gid  verbs.GIDEntry
	// global says that the peer is addressed by GID, not by LID.
	global bool
	kind   verbs.QPType
	frames bool // queues count frames of 4 KiB, and both sides must have as many
}

// openDevice opens a device.
func openDevice(lib *verbs.Library, name string) (*device, error) {
	d, err := lib.Device(name)
	if err != nil {
		return nil, err
	}
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	x := &device{name: name, ctx: ctx}
	if x.attr, err = ctx.Query(); err != nil {
		if e := ctx.Close(); e != nil {
			return nil, fmt.Errorf("%w (and then %w)", err, e)
		}
		return nil, err
	}
	return x, nil
}

// refresh looks at the port again, makes the protection domain, which needs the
// port to be up, and chooses the GID by family.
func (d *device) refresh(kind verbs.QPType) error {
	var err error
	if d.port, err = d.ctx.Port(1); err != nil {
		return err
	}
	d.frames = d.port.LinkLayer == verbs.LinkUnspecified
	d.kind = kind
	if kind == 0 {
		d.kind = verbs.RC
		if d.frames {
			d.kind = verbs.UC
		}
	}
	if d.port.State != verbs.PortActive {
		return nil // matrix.Pair leaves it out and says so
	}
	if d.pd == nil {
		if d.pd, err = d.ctx.AllocPD(); err != nil {
			return err
		}
	}
	d.global = d.port.LinkLayer != verbs.LinkInfiniBand
	if !d.global {
		return nil
	}
	entries, err := d.ctx.GIDs(1)
	if err != nil {
		return err
	}
	d.gid, err = verbs.FindIPv4GID(entries)
	if err != nil && !d.frames {
		// Over Ethernet an IPv6 address will do, of any scope: both ends are
		// on one link.
		for _, e := range entries {
			if a := e.GID.Addr(); a.Is6() {
				d.gid, err = verbs.FindGID(entries, a)
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}

// retries are what the device's reliable queue pairs do before they give up.
func (d *device) retries() verbs.Retries {
	if d.attr.VendorID == verbs.VendorSoftRoCE {
		return verbs.SoftRetries
	}
	return verbs.DefaultRetries
}

// known is what can be told of the device; given is what tools have said of it.
func (d *device) known(given matrix.Host) matrix.Device {
	m := matrix.Device{Name: d.name}
	for _, g := range given.Devices {
		if g.Name == d.name {
			m = g
		}
	}
	m.State = "ACTIVE"
	if d.port.State != verbs.PortActive {
		m.State = strings.ToUpper(d.port.State.String())
	}
	if d.port.LinkLayer == verbs.LinkUnspecified {
		m.Link = "Thunderbolt"
	} else {
		m.Link = d.port.LinkLayer.String()
	}
	m.PortGUID = fmt.Sprintf("%016x", d.attr.NodeGUID)
	if d.global && d.port.State == verbs.PortActive && len(m.Addrs) == 0 {
		m.Addrs = prefixes(d.gid.GID.Addr())
	}
	return m
}

// prefixes finds the subnet of an address of this machine.
func prefixes(a netip.Addr) []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the subnet is only one way to know a cable
	}
	for _, x := range addrs {
		n, ok := x.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		ones, _ := n.Mask.Size()
		if ok && ip.Unmap() == a {
			return []netip.Prefix{netip.PrefixFrom(a, ones)}
		}
	}
	return nil
}

// devices opens those of this rank's row that are not open yet.
func (t *Transport) devices(names []string) error {
	if t.lib == nil {
		lib, err := verbs.Open(t.opts.Library)
		if err != nil {
			return err
		}
		lib.Limit = t.opts.CallLimit
		t.lib = lib
	}
	for _, name := range names {
		d := t.open[name]
		if d == nil {
			var err error
			if d, err = openDevice(t.lib, name); err != nil {
				return err
			}
			t.open[name] = d
		}
		if err := d.refresh(t.opts.Type); err != nil {
			return err
		}
	}
	return nil
}

// host is this rank's knowledge of its devices.
func (t *Transport) host(names []string) matrix.Host {
	h := matrix.Host{Name: t.opts.Host.Name}
	for _, n := range names {
		h.Devices = append(h.Devices, t.open[n].known(t.opts.Host))
	}
	return h
}

// closeDevices ends the use of the library. What a driver refuses to give back
// is named and left behind.
func (t *Transport) closeDevices() error {
	var lost []string
	for name, d := range t.open {
		if err := d.ctx.Close(); err != nil {
			lost = append(lost, err.Error())
			continue
		}
		delete(t.open, name)
	}
	if len(lost) > 0 {
		return fmt.Errorf("%w: rdma: left behind: %s", distributed.ErrUnavailable, strings.Join(lost, "; "))
	}
	if t.lib == nil {
		return nil
	}
	lib := t.lib
	t.lib = nil
	return lib.Close()
}
