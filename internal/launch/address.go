package launch

import (
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The data also travels over the network of the coordinator's address, so it must be one
// of a LAN: never loopback, link-local, point-to-point (with a peer, or in a network of
// fewer than four addresses, like each Thunderbolt cable), a VPN, or a bridge of virtual
// machines. Of the rest, private IPv4 addresses on a wired interface come first, then
// wireless, then public IPv4, then IPv6; before all of these, networks on which every other
// host has an address too.

// hostAddress is an address of a host, with what decides whether it may be the coordinator's.
type hostAddress struct {
	prefix netip.Prefix
	iface  string
	why    string // why it is not suitable, "" if it is
	points int
}

var (
	loopbackName    = regexp.MustCompile(`^lo[0-9]*$`)
	thunderboltPort = regexp.MustCompile(`^Thunderbolt ([0-9]+|Bridge)$`)
	tunnelName      = regexp.MustCompile(`^(utun|tun|tap|wg|tailscale|zt|ppp|ipsec|gif|stf|nebula)`)
	virtualName     = regexp.MustCompile(`^(docker|br-|virbr|veth|cni|flannel|cali|kube|podman|lxc|lxdbr|vmnet|vnet|bridge|awdl|llw|anpi|ap[0-9])`)
	passingFlags    = regexp.MustCompile(`deprecated|tentative|dadfailed|temporary|detached`)
	wirelessPort    = regexp.MustCompile(`Wi-Fi|AirPort`)

	carrierGrade = netip.MustParsePrefix("100.64.0.0/10")
)

// interfaces are the addresses of a host as probeScript prints them.
type interfaces struct {
	ports     map[string]string // names of a Mac's ports
	wireless  map[string]bool
	addresses []hostAddress
}

// parseInterfaces reads the lines of ip or ifconfig in the facts of a host.
func parseInterfaces(f facts) interfaces {
	in := interfaces{ports: map[string]string{}, wireless: map[string]bool{}}
	var mac ifconfig
	for line := range strings.Lines(string(f)) {
		line = strings.TrimRight(line, "\n")
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "wireless ") && len(fields) > 1:
			in.wireless[fields[1]] = true
		case strings.HasPrefix(line, "port ") && len(fields) > 2:
			in.ports[fields[1]] = strings.Join(fields[2:], " ")
		case strings.HasPrefix(line, "ip:"):
			in.ip(fields, line)
		case strings.HasPrefix(line, "ifconfig:"):
			mac.line(&in, strings.TrimPrefix(line, "ifconfig:"))
		}
	}
	mac.flush(&in)
	return in
}

// ip reads a line of ip -o addr:
//
//	2: eth0    inet 192.168.1.10/24 brd 192.168.1.255 scope global eth0\ ...
//	4: tun0    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0
func (in *interfaces) ip(fields []string, line string) {
	if len(fields) < 4 || fields[2] != "inet" && fields[2] != "inet6" {
		return
	}
	text, peer := fields[3], len(fields) > 5 && fields[4] == "peer"
	if peer {
		_, length, _ := strings.Cut(fields[5], "/")
		text += "/" + length
	}
	in.found(fields[1], text, peer, line)
}

// found adds an address in the form ADDRESS/LENGTH; without a length it is a network of
// its own.
func (in *interfaces) found(iface, text string, peer bool, flags string) {
	iface, _, _ = strings.Cut(iface, "@")
	text, length, _ := strings.Cut(text, "/")
	text, _, _ = strings.Cut(text, "%")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > a.BitLen() {
		n = a.BitLen()
	}
	h := hostAddress{prefix: netip.PrefixFrom(a, n), iface: iface}
	h.why, h.points = in.unfit(h, peer, flags), in.score(h)
	in.addresses = append(in.addresses, h)
}

// unfit says why an address is not suitable for a coordinator, "" if it is.
func (in *interfaces) unfit(h hostAddress, peer bool, flags string) string {
	a := h.prefix.Addr()
	switch {
	case loopbackName.MatchString(h.iface) || a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case strings.HasPrefix(h.iface, "thunderbolt") || thunderboltPort.MatchString(in.ports[h.iface]):
		return "a Thunderbolt cable"
	case tunnelName.MatchString(h.iface):
		return "a tunnel"
	case carrierGrade.Contains(a):
		return "a VPN or the provider's network"
	case virtualName.MatchString(h.iface):
		return "virtual or a bridge"
	case peer || strings.Contains(flags, "POINTOPOINT"):
		return "point-to-point"
	case h.prefix.Bits() >= a.BitLen()-2:
		return fmt.Sprintf("point-to-point (/%d)", h.prefix.Bits())
	case passingFlags.MatchString(flags):
		return "not permanent"
	}
	return ""
}

// score prefers private IPv4 addresses on wires.
func (in *interfaces) score(h hostAddress) int {
	points := 10
	switch a := h.prefix.Addr(); {
	case a.Is4() && a.IsPrivate():
		points = 100
	case a.Is4():
		points = 40
	case a.IsPrivate():
		points = 30
	}
	if in.wireless[h.iface] || wirelessPort.MatchString(in.ports[h.iface]) || strings.HasPrefix(h.iface, "wl") {
		points -= 35
	}
	return points
}

// ifconfig collects the lines of an interface, because whether it is active follows its
// addresses:
//
//	en0: flags=8863<UP,BROADCAST,RUNNING> mtu 1500
//		inet 192.168.1.20 netmask 0xffffff00 broadcast 192.168.1.255
//		inet6 fe80::1%en0 prefixlen 64 secured scopeid 0xb
//		status: active
type ifconfig struct {
	iface, flags string
	inactive     bool
	lines        [][]string
}

func (c *ifconfig) line(in *interfaces, line string) {
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
	case line[0] != ' ' && line[0] != '\t':
		c.flush(in)
		c.iface = strings.TrimSuffix(fields[0], ":")
		c.flags = line
	case fields[0] == "status:":
		c.inactive = len(fields) > 1 && fields[1] == "inactive"
	case fields[0] == "inet" || fields[0] == "inet6":
		c.lines = append(c.lines, fields)
	}
}

// flush adds the addresses of the interface.
func (c *ifconfig) flush(in *interfaces) {
	for _, f := range c.lines {
		if c.inactive || len(f) < 2 {
			continue
		}
		text := f[1]
		for i := 2; i+1 < len(f); i++ {
			switch f[i] {
			case "prefixlen":
				text += "/" + f[i+1]
			case "netmask":
				text += "/" + strconv.Itoa(maskLength(f[i+1]))
			}
		}
		in.found(c.iface, text, len(f) > 2 && f[2] == "-->", strings.Join(f, " ")+" "+c.flags)
	}
	*c = ifconfig{}
}

// maskLength is the length of a network by its mask, such as 0xffffff00 or 255.255.255.0.
func maskLength(mask string) int {
	if a, err := netip.ParseAddr(mask); err == nil && a.Is4() {
		b := a.As4()
		return bits.OnesCount8(b[0]) + bits.OnesCount8(b[1]) + bits.OnesCount8(b[2]) + bits.OnesCount8(b[3])
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(mask, "0x"), 16, 32)
	if err != nil {
		return 32
	}
	return bits.OnesCount32(uint32(n))
}

// choice is the coordinator's address, and why not the others of rank 0.
type choice struct {
	best    *hostAddress // nil: none is suitable
	why     string
	skipped []string // ADDRESS on INTERFACE: why
}

// coordinatorOf chooses from the addresses of rank 0, the first of the hosts.
func coordinatorOf(hosts []facts) choice {
	own := parseInterfaces(hosts[0]).addresses
	shared := make([]bool, len(own))
	for i, h := range own {
		shared[i] = len(hosts) > 1 && h.prefix.Addr().Is4()
		for _, other := range hosts[1:] {
			shared[i] = shared[i] && slices.ContainsFunc(parseInterfaces(other).addresses, func(o hostAddress) bool {
				return o.why == "" && o.prefix.Masked() == h.prefix.Masked()
			})
		}
		if shared[i] {
			own[i].points += 1000
		}
	}
	best := -1
	for i, h := range own {
		if h.why == "" && (best < 0 || h.points > own[best].points) {
			best = i
		}
	}
	var c choice
	for i, h := range own {
		switch {
		case i != best && h.why == "":
			h.why = "another is preferred"
			fallthrough
		case i != best:
			c.skipped = append(c.skipped, fmt.Sprintf("%v on %s: %s", h.prefix.Addr(), h.iface, h.why))
		default:
			c.best, c.why = &own[i], "the best address of rank 0"
			if shared[i] {
				c.why = "every host is on its network"
			}
		}
	}
	return c
}

// chooseCoordinator chooses the coordinator's address and says why.
func (g *group) chooseCoordinator(hosts []facts) (string, error) {
	c := coordinatorOf(hosts)
	if c.best == nil {
		return "", fmt.Errorf("%s has no address suitable for the coordinator (give one with --coordinator): %s", g.name(0), strings.Join(c.skipped, "; "))
	}
	g.say("coordinator %v on %s: %s, %s", c.best.prefix.Addr(), g.name(0), c.best.iface, c.why)
	return c.best.prefix.Addr().String(), nil
}
