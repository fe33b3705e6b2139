package matrix

import "net/netip"

// Device is what a rank knows of one of its RDMA devices. Fields that are not
// known are empty.
type Device struct {
	Name      string         `json:"name"`                 // "rdma_en5", "mlx5_0"
	Interface string         `json:"interface,omitempty"`  // its network interface: "en5"
	PortGUID  string         `json:"port_guid,omitempty"`  // 16 hexadecimal digits
	GIDs      []netip.Addr   `json:"gids,omitempty"`       // by index; the zero Addr for an empty one
	MAC       string         `json:"mac,omitempty"`        // of the interface
	Addrs     []netip.Prefix `json:"addrs,omitempty"`      // of the interface
	Domain    string         `json:"domain,omitempty"`     // UUID of the Thunderbolt port
	FarDomain string         `json:"far_domain,omitempty"` // UUID of the port at the other end of its cable
	Port      string         `json:"port,omitempty"`       // the socket in words: "Thunderbolt 2"
	Speed     string         `json:"speed,omitempty"`      // of the link, in words
	State     string         `json:"state,omitempty"`      // "ACTIVE", "DOWN", …
	Link      string         `json:"link,omitempty"`       // "InfiniBand", "Ethernet", "Thunderbolt"
}

// Active is false for a device that is known not to be ready.
func (d *Device) Active() bool { return d.State == "" || d.State == "ACTIVE" }

// Host is what one rank knows of itself.
type Host struct {
	Name    string   `json:"name"` // for people
	Devices []Device `json:"devices"`
}

// device finds a device by name; one that the host does not know has but a name.
func (h *Host) device(name string) Device {
	for _, d := range h.Devices {
		if d.Name == name {
			return d
		}
	}
	return Device{Name: name}
}

// identity is how two ends are known to be of one cable.
type identity int

const (
	unknown  identity = iota // nothing speaks for or against it
	excluded                 // they are not
	bySubnet
	byDomain
)

// joined compares two ends: first by the Thunderbolt domains, then by the
// subnets of their interfaces.
func joined(a, b *Device) identity {
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
			if ofCable(p) && ofCable(q) && p.Masked() == q.Masked() && p.Addr() != q.Addr() {
				return bySubnet
			}
		}
	}
	return unknown // unlike subnets prove nothing: addresses outlive a cable
}

// ofCable tells whether a subnet has only the two ends of a cable, as launchers
// set them up: /30 or /31, or a /64 that is not the link-local one, which every
// interface has.
func ofCable(p netip.Prefix) bool {
	if p.Addr().IsLinkLocalUnicast() || p.Addr().IsLoopback() {
		return false
	}
	if p.Addr().Is4() {
		return p.Bits() >= 30 && p.Bits() < 32
	}
	return p.Bits() >= 64 && p.Bits() < 128
}
