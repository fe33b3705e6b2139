package matrix

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// HardwarePort is an entry of networksetup: a socket and its network interface.
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

// after returns the word that follows a key, "" if none does.
func after(f []string, key string) string {
	if i := slices.Index(f[:len(f)-1], key); i >= 0 {
		return f[i+1]
	}
	return ""
}

// add adds an address with its mask: 0xfffffffc, 255.255.255.252 or 64.
func (i *Interface) add(addr, mask string) {
	addr, _, _ = strings.Cut(addr, "%")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return
	}
	length := -1
	if v, ok := strings.CutPrefix(mask, "0x"); ok {
		if m, err := strconv.ParseUint(v, 16, 32); err == nil {
			length = maskLength(uint32(m))
		}
	} else if m, err := netip.ParseAddr(mask); err == nil && m.Is4() {
		b := m.As4()
		length = maskLength(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
	} else if n, err := strconv.Atoi(mask); err == nil {
		length = n
	}
	if p := netip.PrefixFrom(a, length); p.IsValid() && len(i.Addrs) < maxAddrs {
		i.Addrs = append(i.Addrs, p)
	}
}

// maskLength returns the number of leading ones of a mask, -1 if a one follows a
// zero.
func maskLength(m uint32) int {
	n := bits.LeadingZeros32(^m)
	if n < 32 && m<<n != 0 {
		return -1
	}
	return n
}

// ThunderboltPort is a socket of a Mac.
type ThunderboltPort struct {
	Receptacle string   // "1"; networksetup calls it "Thunderbolt 1"
	Domain     string   // UUID of the port
	Far        []string // UUIDs of the ports at the other end of the cable, also behind hubs
	Speed      string   // "80 Gb/s" of a link, "Up to 120 Gb/s" of a free socket
	// NoRDMA lists the models of the Macs at the other end that list their
	// services but do not offer RDMA over this port.
	NoRDMA []string
}

// rdmaService is the Thunderbolt service under which a Mac offers RDMA. A Mac
// lists it, as an unknown service, only while RDMA is enabled.
const rdmaService = 64087

// maxNesting bounds how many hubs in a row are followed.
const maxNesting = 16

type thunderboltItem struct {
	Domain     string          `json:"domain_uuid_key"`
	Model      any             `json:"device_name_key"`
	Services   json.RawMessage `json:"services_title"`
	Receptacle json.RawMessage `json:"receptacle_1_tag"`
	Items      json.RawMessage `json:"_items"`
}

// ParseThunderbolt reads the output of system_profiler SPThunderboltDataType
// -json. It fails on anything but JSON of that form.
func ParseThunderbolt(output []byte) ([]ThunderboltPort, error) {
	var top struct {
		Buses []thunderboltItem `json:"SPThunderboltDataType"`
	}
	if err := json.Unmarshal(output, &top); err != nil {
		return nil, fmt.Errorf("system_profiler SPThunderboltDataType: %w", err)
	}
	var all []ThunderboltPort
	for _, bus := range top.Buses {
		if bus.Domain == "" {
			continue // RDMA needs a bus with a domain
		}
		p := ThunderboltPort{Domain: strings.ToUpper(bus.Domain)}
		var tag struct {
			ID    any `json:"receptacle_id_key"`
			Speed any `json:"current_speed_key"`
		}
		if len(bus.Receptacle) > 0 && json.Unmarshal(bus.Receptacle, &tag) == nil {
			p.Receptacle, p.Speed = text(tag.ID), text(tag.Speed)
		}
		p.collect(bus.Items, 0)
		all = append(all, p)
	}
	return all, nil
}

// text returns a string or a number as text, otherwise "".
func text(v any) string {
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
			if x.withoutRDMA() {
				p.NoRDMA = append(p.NoRDMA, text(x.Model))
			}
		}
		p.collect(x.Items, depth+1)
	}
}

// withoutRDMA reports whether a Mac lists services but not RDMA.
func (x *thunderboltItem) withoutRDMA() bool {
	var services []struct {
		ID any `json:"protocol_id_key"`
	}
	if len(x.Services) == 0 || json.Unmarshal(x.Services, &services) != nil {
		return false
	}
	for _, s := range services {
		if text(s.ID) == strconv.Itoa(rdmaService) {
			return false
		}
	}
	return len(services) > 0
}
