package bringup

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/helper"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

// Devices are the devices of this host that bring-ups have opened. They stay open until Close,
// because some drivers lose protection domains when these are freed and made again. One
// bring-up at a time uses them.
type Devices struct {
	// Library is the file of the verbs library; "" for the system's.
	Library string
	// Helper makes the calls of each device in a helper process; Spin is how long that polls
	// without result before its thread yields.
	Helper bool
	Spin   time.Duration
	// Type of the queue pairs; 0 for UC on Thunderbolt and RC elsewhere.
	Type verbs.QPType

	lib     *verbs.Library
	loading *loading // nil: the library is not being loaded
	open    map[string]*device
}

// device is an open device.
type device struct {
	name   string
	ctx    *verbs.Context
	pd     *verbs.PD
	attr   verbs.DeviceAttr
	port   verbs.PortAttr
	gids   []verbs.GIDEntry // addresses of the port, best first
	noGID  error            // why it has none
	global bool             // the peer is addressed by GID, not by LID
	kind   verbs.QPType
	frames bool // queues count frames of 4 KiB, and both sides must have equally many
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

// refresh queries the port again, makes the protection domain, which needs the port to be up,
// and chooses GIDs by address family. A port without an address is not an error: its rails are
// left out, and the next bring-up queries it again.
func (d *device) refresh(kind verbs.QPType) error {
	var err error
	if d.port, err = d.ctx.Port(1); err != nil {
		return err
	}
	d.frames = verbs.Thunderbolt(d.name, d.port.LinkLayer)
	d.kind = kind
	if d.frames && kind != 0 && kind != verbs.UC {
		return fmt.Errorf("%w: %s: Thunderbolt supports only UC queue pairs, not %v", distributed.ErrConfig, d.name, kind)
	}
	if kind == 0 {
		d.kind = verbs.RC
		if d.frames {
			d.kind = verbs.UC
		}
	}
	if d.port.State != verbs.PortActive {
		return nil // matrix.Pair leaves it out and reports that
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
	if d.frames {
		d.gids, d.noGID = verbs.Addresses(entries)
		return nil
	}
	d.gids, d.noGID = nil, nil
	e, err := verbs.FindIPv4GID(entries)
	if err != nil {
		// Over Ethernet an IPv6 address of any scope works, because both ends are on one link.
		for _, x := range entries {
			if a := x.GID.Addr(); a.Is6() {
				e, err = verbs.FindGID(entries, a)
				break
			}
		}
	}
	if err != nil {
		d.noGID = err
		return nil
	}
	d.gids = []verbs.GIDEntry{e}
	return nil
}

// addresses returns the addresses that the peers may use.
func (d *device) addresses() []verbs.GID {
	var out []verbs.GID
	for _, e := range d.gids {
		out = append(out, e.GID)
	}
	return out
}

// drops reports whether the device's queue pairs lose a message without a posted receive.
// Those of Thunderbolt hold it, and reliable ones send it again.
func (d *device) drops() bool { return d.kind == verbs.UC && !d.frames }

// retries returns how often the device's reliable queue pairs retry before they give up.
func (d *device) retries() verbs.Retries {
	if d.attr.VendorID == verbs.VendorSoftRoCE {
		return verbs.SoftRetries
	}
	return verbs.DefaultRetries
}

// describe returns what is known about the device; tools is what the host's tools report.
func (d *device) describe(tools matrix.Host) matrix.Device {
	m := matrix.Device{Name: d.name}
	for _, g := range tools.Devices {
		if g.Name == d.name {
			m = g
		}
	}
	m.State = "ACTIVE"
	if d.port.State != verbs.PortActive {
		m.State = strings.ToUpper(d.port.State.String())
	}
	m.Link = d.port.LinkLayer.String()
	if d.frames {
		m.Link = verbs.LinkThunderbolt.String()
	}
	if d.noGID != nil && d.port.State == verbs.PortActive {
		m.Lacks = strings.TrimPrefix(d.noGID.Error(), fmt.Sprintf("%v: %v: ", distributed.ErrUnavailable, verbs.ErrNoGID))
	}
	m.PortGUID = fmt.Sprintf("%016x", d.attr.NodeGUID)
	if len(d.gids) > 0 && d.port.State == verbs.PortActive && len(m.Addrs) == 0 {
		m.Addrs = prefixes(d.gids[0].GID.Addr())
	}
	return m
}

// prefixes returns the subnet of an address of this host.
func prefixes(a netip.Addr) []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // not fatal, because the subnet is only one way to recognise a cable
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

// loading is a library that is being loaded.
type loading struct {
	done chan struct{} // closed when the rest is set
	lib  *verbs.Library
	err  error
}

// load loads the library. Loading runs code of the library, which may hang. When ctx ends,
// load abandons it, because no device is held yet, and the next call waits for it.
func (d *Devices) load(ctx context.Context) error {
	if d.lib != nil {
		return nil
	}
	if d.loading == nil {
		l := &loading{done: make(chan struct{})}
		path, spin, open := d.Library, d.Spin, verbs.Open
		if d.Helper {
			open = func(path string) (*verbs.Library, error) { return helper.Open(path, spin) }
		}
		go func() {
			defer close(l.done)
			l.lib, l.err = open(path)
		}()
		d.loading = l
	}
	select {
	case <-d.loading.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: rdma: the verbs library is still being loaded: %w", distributed.ErrBootstrap, context.Cause(ctx))
	}
	l := d.loading
	d.loading = nil
	d.lib = l.lib
	return l.err
}

// use opens the named devices that are not open yet and refreshes all of them. Each call of
// the library is bounded; after the end of ctx no other call is made.
func (d *Devices) use(ctx context.Context, names []string) error {
	if err := d.load(ctx); err != nil {
		return err
	}
	if d.open == nil {
		d.open = map[string]*device{}
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: rdma: devices from %s onwards are not open: %w", distributed.ErrBootstrap, name, context.Cause(ctx))
		}
		lost, err := d.ready(name)
		if lost {
			// It is tried once more, because its helper may have ended unnoticed after its
			// last use, and a new helper does not have that fault.
			_, err = d.ready(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ready opens a device, unless it is open, and refreshes it. lost reports whether the error is
// the end of its helper.
func (d *Devices) ready(name string) (lost bool, err error) {
	x := d.open[name]
	if x != nil && x.ctx.Err() != nil {
		// Its helper has ended, and all of its objects with it.
		if err := x.ctx.Close(); err != nil {
			return false, err
		}
		delete(d.open, name)
		x = nil
	}
	if x == nil {
		if x, err = openDevice(d.lib, name); err != nil {
			return false, err
		}
		d.open[name] = x
	}
	err = x.refresh(d.Type)
	return err != nil && x.ctx.Err() != nil, err
}

// host returns what this rank knows about its devices.
func (d *Devices) host(names []string, tools matrix.Host) matrix.Host {
	h := matrix.Host{Name: tools.Name}
	for _, n := range names {
		h.Devices = append(h.Devices, d.open[n].describe(tools))
	}
	return h
}

// Close closes the devices and the library. Its error names what a driver did not free, which
// is left behind.
func (d *Devices) Close() error {
	var lost []string
	for name, x := range d.open {
		if err := x.ctx.Close(); err != nil {
			lost = append(lost, err.Error())
			continue
		}
		delete(d.open, name)
	}
	if len(lost) > 0 {
		return fmt.Errorf("%w: rdma: left behind: %s", distributed.ErrUnavailable, strings.Join(lost, "; "))
	}
	if d.loading != nil {
		select {
		case <-d.loading.done:
			d.lib, d.loading = d.loading.lib, nil
		default:
			return fmt.Errorf("%w: rdma: left behind: the verbs library, which is still being loaded", distributed.ErrUnavailable)
		}
	}
	if d.lib == nil {
		return nil
	}
	lib := d.lib
	d.lib = nil
	return lib.Close()
}
