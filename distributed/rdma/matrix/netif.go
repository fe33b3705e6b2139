package matrix

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// HardwarePort is a line of networksetup: a socket and its interface.
type HardwarePort struct {
	Port      string // "Thunderbolt 2"
	Interface string // "en3"
	MAC       string
}

// ParseHardwarePorts reads the output of networksetup -listallhardwareports.
func ParseHardwarePorts(text string) []HardwarePort {
	var all []HardwarePort
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		if key == "Hardware Port" {
			all = append(all, HardwarePort{Port: value})
			continue
		}
		if len(all) == 0 {
			continue
		}
		switch p := &all[len(all)-1]; key {
		case "Device":
			p.Interface = value
		case "Ethernet Address":
			p.MAC = parseMAC(value)
		}
	}
	return all
}

func parseMAC(s string) string {
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 {
		return ""
	}
	return m.String()
}

// Interface is a network interface with its addresses.
type Interface struct {
	Name    string
	MAC     string
	Addrs   []netip.Prefix
	Members []string // of a bridge
}

// ParseIfconfig reads the output of ifconfig, of macOS and of Linux.
func ParseIfconfig(text string) []Interface {
	var all []Interface
	for line := range strings.Lines(text) {
		if line[0] != ' ' && line[0] != '\t' {
			name, _, ok := strings.Cut(line, ":")
			if ok && name != "" && !strings.ContainsAny(name, " \t") {
				all = append(all, Interface{Name: name})
			}
			continue
		}
		f := strings.Fields(line)
		if len(all) == 0 || len(f) < 2 {
			continue
		}
		i := &all[len(all)-1]
		switch f[0] {
		case "ether":
			i.MAC = parseMAC(f[1])
		case "inet":
			i.add(f[1], after(f, "netmask"))
		case "inet6":
			i.add(f[1], after(f, "prefixlen"))
		case "member:":
			i.Members = append(i.Members, f[1])
		}
	}
	return all
}

// after is the word behind a key.
func after(f []string, key string) string {
	for i, w := range f[:len(f)-1] {
		if w == key {
			return f[i+1]
		}
	}
	return ""
}

// add takes an address and its mask: 0xfffffffc, 255.255.255.252 or 64.
func (i *Interface) add(addr, mask string) {
	addr, _, _ = strings.Cut(addr, "%")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return
	}
	length := -1
	if v, ok := strings.CutPrefix(mask, "0x"); ok {
		if m, err := strconv.ParseUint(v, 16, 32); err == nil {
			length = ones(uint32(m))
		}
	} else if m, err := netip.ParseAddr(mask); err == nil && m.Is4() {
		b := m.As4()
		length = ones(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
	} else if n, err := strconv.Atoi(mask); err == nil {
		length = n
	}
	if p := netip.PrefixFrom(a, length); p.IsValid() && len(i.Addrs) < maxAddrs {
		i.Addrs = append(i.Addrs, p)
	}
}

// ones is the length of a mask, -1 if it has holes.
func ones(m uint32) int {
	n := bits.LeadingZeros32(^m)
	if n < 32 && m<<n != 0 {
		return -1
	}
	return n
}

// ParseIPAddr reads the output of ip -o addr and ip -o link, in any order: the
// interfaces of Linux.
func ParseIPAddr(text string) []Interface {
	var all []Interface
	byName := map[string]int{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasSuffix(f[0], ":") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(f[1], ":"), "@")
		k, ok := byName[name]
		if !ok {
			k = len(all)
			byName[name] = k
			all = append(all, Interface{Name: name})
		}
		if f[2] == "inet" || f[2] == "inet6" {
			if p, err := netip.ParsePrefix(after(f, f[2])); err == nil && len(all[k].Addrs) < maxAddrs {
				all[k].Addrs = append(all[k].Addrs, p)
			}
		}
		if mac := parseMAC(after(f, "link/ether")); mac != "" {
			all[k].MAC = mac
		}
	}
	return all
}

// ThunderboltPort is a socket of a Mac.
type ThunderboltPort struct {
	Receptacle string   // "1"; networksetup calls it "Thunderbolt 1"
	Domain     string   // UUID of the port
	Far        []string // UUIDs of the ports at the other end of the cable, behind hubs too
	Speed      string   // "Up to 80 Gb/s"
}

// maxNesting is how deep hubs are followed.
const maxNesting = 16

type thunderboltItem struct {
	Domain     string          `json:"domain_uuid_key"`
	Receptacle json.RawMessage `json:"receptacle_1_tag"`
	Items      json.RawMessage `json:"_items"`
}

// ParseThunderbolt reads the output of system_profiler SPThunderboltDataType
// -json. It fails on what is not JSON of that form.
func ParseThunderbolt(text []byte) ([]ThunderboltPort, error) {
	var top struct {
		Buses []thunderboltItem `json:"SPThunderboltDataType"`
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, fmt.Errorf("system_profiler SPThunderboltDataType: %w", err)
	}
	var all []ThunderboltPort
	for _, bus := range top.Buses {
		if bus.Domain == "" {
			continue // no RDMA leads through a bus without a domain
		}
		p := ThunderboltPort{Domain: strings.ToUpper(bus.Domain)}
		var tag struct {
			ID    any `json:"receptacle_id_key"`
			Speed any `json:"current_speed_key"`
		}
		if len(bus.Receptacle) > 0 && json.Unmarshal(bus.Receptacle, &tag) == nil {
			p.Receptacle, p.Speed = word(tag.ID), word(tag.Speed)
		}
		p.collect(bus.Items, 0)
		all = append(all, p)
	}
	return all, nil
}

// word is a string or a number as text.
func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (p *ThunderboltPort) collect(items json.RawMessage, depth int) {
	var list []thunderboltItem
	if depth > maxNesting || len(items) == 0 || json.Unmarshal(items, &list) != nil {
		return
	}
	for _, x := range list {
		if d := strings.ToUpper(x.Domain); d != "" && d != p.Domain {
			p.Far = append(p.Far, d)
		}
		p.collect(x.Items, depth+1)
	}
}
