package matrix

import (
	"cmp"
	"fmt"
	"strings"
)

// MacHost combines what the tools of a Mac report: the device rdma_enX belongs to
// the interface enX, the interface to a socket, the socket to a Thunderbolt
// domain. devices come from ibv_devices; details, from ibv_devinfo -v, may add
// state and GIDs.
func MacHost(name string, devices, details []Device, ports []HardwarePort, sockets []ThunderboltPort, interfaces []Interface) Host {
	h := Host{Name: name}
	for _, d := range devices {
		d.Link = "Thunderbolt"
		d.Interface = strings.TrimPrefix(d.Name, "rdma_")
		for _, p := range ports {
			if p.Interface != d.Interface {
				continue
			}
			d.Port, d.MAC = p.Port, p.MAC
			for _, s := range sockets {
				if s.Receptacle != "" && p.Port == "Thunderbolt "+s.Receptacle {
					d.Domain, d.Speed = s.Domain, s.Speed
					if len(s.Far) == 1 {
						d.FarDomain = s.Far[0] // with several, behind a hub, the cable is unknown
					}
				}
			}
		}
		d.merge(details, interfaces)
		h.Devices = append(h.Devices, d)
	}
	return h
}

// LinuxHost combines what a Linux host reports: the devices of sysfs, details of
// ibv_devinfo -v, and the addresses of the interfaces.
func LinuxHost(name string, devices, details []Device, interfaces []Interface) Host {
	h := Host{Name: name}
	for _, d := range devices {
		d.merge(details, interfaces)
		h.Devices = append(h.Devices, d)
	}
	return h
}

// merge adds what other sources know about the device.
func (d *Device) merge(details []Device, interfaces []Interface) {
	for _, x := range details {
		if x.Name != d.Name {
			continue
		}
		d.PortGUID = cmp.Or(d.PortGUID, x.PortGUID)
		d.State = cmp.Or(d.State, x.State)
		d.Link = cmp.Or(d.Link, x.Link)
		if len(d.GIDs) == 0 {
			d.GIDs = x.GIDs
		}
	}
	for _, i := range interfaces {
		if i.Name != d.Interface || d.Interface == "" {
			continue
		}
		d.Addrs = i.Addrs
		d.MAC = cmp.Or(d.MAC, i.MAC)
	}
}

// Network is the result of Discover.
type Network struct {
	Matrix Matrix   // of all ranks, rails paired
	Cables []Cable  // by lower rank, higher rank, rail
	Notes  []string // devices that are not used, and why
}

// port is a device of a rank.
type port struct {
	rank int
	name string
}

// Discover finds the cables between hosts, which are in rank order. It uses the
// Thunderbolt domains, otherwise the subnets of the interfaces. With switched it
// assumes that every active device reaches every other, and pairs them in the
// order in which the hosts list them.
func Discover(hosts []Host, switched bool) Network {
	n := Network{Matrix: make(Matrix, len(hosts))}
	for i := range hosts {
		n.Matrix[i] = make([][]string, len(hosts))
	}
	used := map[port]bool{}
	for i := range hosts {
		for j := i + 1; j < len(hosts); j++ {
			if switched {
				n.switched(hosts, i, j, used)
				continue
			}
			n.cabled(hosts, i, j, used)
		}
	}
	for i, h := range hosts {
		for _, d := range h.Devices {
			switch {
			case used[port{i, d.Name}]:
			case !d.Active():
				n.Notes = append(n.Notes, fmt.Sprintf("rank %d %s %s: its port is %s", i, h.Name, d.Name, d.State))
			default:
				n.Notes = append(n.Notes, fmt.Sprintf("rank %d %s %s: no cable to another rank was found", i, h.Name, d.Name))
			}
		}
	}
	return n
}

func (n *Network) add(i, j int, a, b Device, key string, used map[port]bool) {
	n.Matrix[i][j] = append(n.Matrix[i][j], a.Name)
	n.Matrix[j][i] = append(n.Matrix[j][i], b.Name)
	n.Cables = append(n.Cables, Cable{Attempt{i, a.Name, j, b.Name}, key})
	used[port{i, a.Name}], used[port{j, b.Name}] = true, true
}

// switched pairs the active devices of two hosts in their order.
func (n *Network) switched(hosts []Host, i, j int, used map[port]bool) {
	active := func(h Host) (all []Device) {
		for _, d := range h.Devices {
			if d.Active() {
				all = append(all, d)
			}
		}
		return all
	}
	a, b := active(hosts[i]), active(hosts[j])
	for k := range min(len(a), len(b), MaxRails) {
		n.add(i, j, a[k], b[k], "order", used)
	}
}

// cabled pairs devices that are known to be the ends of one cable, if each has
// only one candidate.
func (n *Network) cabled(hosts []Host, i, j int, used map[port]bool) {
	for _, key := range []struct {
		id   identity
		name string
	}{{byDomain, "domain"}, {bySubnet, "subnet"}} {
		for _, a := range hosts[i].Devices {
			candidates := candidatesFor(a, hosts[j].Devices, key.id)
			if len(candidates) != 1 || len(candidatesFor(candidates[0], hosts[i].Devices, key.id)) != 1 {
				continue
			}
			b := candidates[0]
			if !a.Active() || !b.Active() || used[port{i, a.Name}] || used[port{j, b.Name}] {
				continue
			}
			n.add(i, j, a, b, key.name, used)
		}
	}
}

// candidatesFor lists the devices that id identifies as the other end of d's
// cable.
func candidatesFor(d Device, others []Device, id identity) (candidates []Device) {
	for _, x := range others {
		if identify(&d, &x) == id {
			candidates = append(candidates, x)
		}
	}
	return candidates
}

// Map lists the cables for people, one on a line, then the notes.
func (n Network) Map(hosts []Host) string {
	var b strings.Builder
	side := func(rank int, name string) string {
		d := hosts[rank].device(name)
		s := fmt.Sprintf("rank %d %s %s", rank, hosts[rank].Name, name)
		if d.Port != "" {
			s += " (" + d.Port + ")"
		}
		return s
	}
	for _, c := range n.Cables {
		fmt.Fprintf(&b, "%s <-> %s", side(c.RankA, c.DeviceA), side(c.RankB, c.DeviceB))
		if s := hosts[c.RankA].device(c.DeviceA).Speed; s != "" {
			fmt.Fprintf(&b, ", %s", s)
		}
		fmt.Fprintf(&b, ", by %s\n", c.Key)
	}
	if len(n.Cables) == 0 {
		b.WriteString("no cables found\n")
	}
	for _, note := range n.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.String()
}
