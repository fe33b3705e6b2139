package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MappedGID is the index of the first GID that is an IPv4 address, the one that
// a queue pair over Ethernet or Thunderbolt uses; -1 if there is none. It is
// found by its form: its place differs between hosts.
func (d *Device) MappedGID() (int, netip.Addr) {
	for i, a := range d.GIDs {
		if a.Is4In6() {
			return i, a.Unmap()
		}
	}
	return -1, netip.Addr{}
}

// CheckHost tells what is wrong with the devices that row rank names, by what
// the rank knows of itself: a device that is not there, a port that is not
// active, a port without an IPv4 address. Each is a *Problem. Pair leaves such
// rails out; strict callers stop.
func (m Matrix) CheckHost(file string, rank int, h Host) []*Problem {
	var all []*Problem
	add := func(j int, cure, what string, args ...any) {
		p := problem(rank, j, cure, what, args...)
		p.File = file
		all = append(all, p)
	}
	var have []string
	for _, d := range h.Devices {
		have = append(have, d.Name)
	}
	for j, names := range m[rank] {
		for _, name := range names {
			d := h.device(name)
			gid, _ := d.MappedGID()
			switch {
			case !slices.Contains(have, name):
				add(j, "name one of them, or enable RDMA on that port", "%s has no device %q, only [%s]", h.Name, name, strings.Join(have, ", "))
			case !d.Active():
				add(j, "look at the cable, and whether RDMA is enabled at both ends", "the port of %q on %s is %s", name, h.Name, d.State)
			case gid < 0 && len(d.GIDs) > 0 && d.Link != "InfiniBand":
				add(j, addAddress(&d), "%q on %s has no GID of an IPv4 address", name, h.Name)
			}
		}
	}
	return all
}

// addAddress is the cure for an interface without an IPv4 address.
func addAddress(d *Device) string {
	i := d.Interface
	if i == "" {
		return "give its network interface an IPv4 address"
	}
	return fmt.Sprintf("give its interface an address of its own, outside any bridge: ifconfig %s inet 192.168.0.1 netmask 255.255.255.252 alias", i)
}
