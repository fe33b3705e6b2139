package matrix

import (
	"net/netip"
	"slices"
)

// Device is what a rank knows about one of its RDMA devices. Unknown fields are
// empty.
type Device struct {
	Name      string         `json:"name"`                 // "rdma_en5", "mlx5_0"
	Interface string         `json:"interface,omitempty"`  // its network interface: "en5"
	PortGUID  string         `json:"port_guid,omitempty"`  // 16 hexadecimal digits
	GIDs      []netip.Addr   `json:"gids,omitempty"`       // by index; the zero Addr for an empty one
	MAC       string         `json:"mac,omitempty"`        // of the interface
	Addrs     []netip.Prefix `json:"addrs,omitempty"`      // of the interface
	Domain    string         `json:"domain,omitempty"`     // UUID of the Thunderbolt port
	FarDomain string         `json:"far_domain,omitempty"` // UUID of the port at the other end of its cable
	Port      string         `json:"port,omitempty"`       // name of the socket: "Thunderbolt 2"
	Speed     string         `json:"speed,omitempty"`      // of the link, as the tool prints it
	State     string         `json:"state,omitempty"`      // "ACTIVE", "DOWN", …
	Lacks     string         `json:"lacks,omitempty"`      // what an active port lacks, with the cure; it cannot be used
	Link      string         `json:"link,omitempty"`       // "InfiniBand", "Ethernet", "Thunderbolt"
}

// Active returns false if the device is known not to be ready.
func (d *Device) Active() bool { return d.State == "" || d.State == "ACTIVE" }

// Host is what one rank knows about itself.
type Host struct {
	Name    string   `json:"name"` // for messages
	Devices []Device `json:"devices"`
}

// device returns the device of a name; if the host does not know it, the result
// has only the name.
func (h *Host) device(name string) Device {
	for _, d := range h.Devices {
		if d.Name == name {
			return d
		}
	}
	return Device{Name: name}
}

// identity says whether two devices are the ends of one cable, and how that is
// known.
type identity int

const (
	unknown  identity = iota // nothing is known
	excluded                 // they are not the ends of one cable
	bySubnet
	byDomain
)

// identify compares two devices: first by the Thunderbolt domains, then by the
// subnets of their interfaces.
func identify(a, b *Device) identity {
	if a.FarDomain != "" && b.Domain != "" || b.FarDomain != "" && a.Domain != "" {
		there := a.FarDomain == "" || b.Domain == "" || a.FarDomain == b.Domain
		back := b.FarDomain == "" || a.Domain == "" || b.FarDomain == a.Domain
		if there && back {
			return byDomain
		}
		return excluded
	}
	for _, p := range a.Addrs {
		for _, q := range b.Addrs {
			if pointToPoint(p) && pointToPoint(q) && p.Masked() == q.Masked() && p.Addr() != q.Addr() {
				return bySubnet
			}
		}
	}
	return unknown // different subnets prove nothing, because addresses outlive a cable
}

// pointToPoint reports whether a subnet can belong to one cable, as launchers set
// them up: /30 or /31, or a /64. The link-local /64 does not count, because every
// interface has it.
func pointToPoint(p netip.Prefix) bool {
	if p.Addr().IsLinkLocalUnicast() || p.Addr().IsLoopback() {
		return false
	}
	if p.Addr().Is4() {
		return p.Bits() >= 30 && p.Bits() < 32
	}
	return p.Bits() >= 64 && p.Bits() < 128
}

// MappedGID returns the index and the address of the first GID that is an IPv4
// address, -1 for none. A queue pair over Ethernet or Thunderbolt prefers it. Its
// index differs between hosts.
func (d *Device) MappedGID() (int, netip.Addr) {
	for i, a := range d.GIDs {
		if a.Is4In6() {
			return i, a.Unmap()
		}
	}
	return -1, netip.Addr{}
}

// LinkLocalGID reports whether a GID is a link-local IPv6 address, which a queue
// pair over Thunderbolt uses if the port has no IPv4 address. It accepts addresses
// of fe80::/10 with zeros up to the interface id, because a UUID in the table
// cannot have those zeros.
func (d *Device) LinkLocalGID() bool {
	return slices.ContainsFunc(d.GIDs, linkLocal.Contains)
}

var linkLocal = netip.MustParsePrefix("fe80::/64")
