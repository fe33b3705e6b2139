// Package network opens TCP sockets for the whole program. It dials, it listens (also on
// the first free port of a range), and it says what an error of the system means and what
// cures it. No other package calls net.Listen or makes a net.Dialer (tests/lint).
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Control sets options of a socket before it is bound or connected; may be nil.
type Control func(network, address string, c syscall.RawConn) error

// Dialer makes plain TCP connections. Go may use Multipath TCP otherwise, but its sockets
// on Linux lose the zone of link-local addresses and refuse TCP_USER_TIMEOUT, and ranks
// have no use for it.
func Dialer() *net.Dialer {
	d := &net.Dialer{}
	d.SetMultipathTCP(false)
	return d
}

// Listen listens on addr, HOST:PORT, without Multipath TCP (see Dialer). Unlike
// net.Listen, which takes 0.0.0.0 for all addresses of both families, it takes it for
// those of IPv4. Errors name the address and, if known, the cure.
func Listen(ctx context.Context, addr string, keepAlive net.KeepAliveConfig, control Control) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err == nil {
		err = CheckZone(host)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	cfg := net.ListenConfig{Control: control, KeepAliveConfig: keepAlive}
	cfg.SetMultipathTCP(false)
	ln, err := cfg.Listen(ctx, family(host), addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w%s", addr, err, listenCure(err))
	}
	return ln, nil
}

// family returns the network on which to listen at a host.
func family(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// listenCure returns what to do after an error of listening, "" if nothing is known.
func listenCure(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (another program is listening there, perhaps another Ringmaster: stop it, or choose another port; ss -ltnp, or on a Mac lsof -iTCP -sTCP:LISTEN, shows which)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf(" (not an address of this host, which has %s)", Own())
	case errors.Is(err, syscall.EACCES):
		return " (ports below 1024 are reserved: choose a higher one)"
	}
	return ""
}

// Ports is a range of ports, both ends included. The zero value leaves the choice to the
// system.
type Ports struct{ First, Last uint16 }

// ParsePorts reads a port, 7701, or a range, 7701-7708; "" is the zero value.
func ParsePorts(s string) (Ports, error) {
	if s == "" {
		return Ports{}, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a {
		return Ports{}, fmt.Errorf("%q is not a port or a range of ports such as 7701 or 7701-7708, from 1 to 65535", s)
	}
	return Ports{uint16(a), uint16(b)}, nil
}

// String returns the form that ParsePorts reads.
func (p Ports) String() string {
	switch {
	case p == Ports{}:
		return ""
	case p.First == p.Last:
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Listen listens at a host on the first free port of the range.
func (p Ports) Listen(ctx context.Context, host string, keepAlive net.KeepAliveConfig, control Control) (net.Listener, error) {
	for port := int(p.First); ; port++ {
		ln, err := Listen(ctx, net.JoinHostPort(host, strconv.Itoa(port)), keepAlive, control)
		switch {
		case err == nil:
			return ln, nil
		case p != Ports{} && errors.Is(err, syscall.EADDRINUSE) && port < int(p.Last):
			continue
		case p != Ports{} && errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("no port of --data-port %v is free at %s: each rank on a host needs one of its own, and two with RDMA; give a range such as %d-%d: %w",
				p, host, p.First, min(int(p.First)+7, 65535), err)
		}
		return nil, err
	}
}

// CheckZone returns an error for a link-local IPv6 address that names no interface, or
// one that this host does not have. Every interface has such addresses, so that the
// system cannot tell which is meant, and its own error does not say so.
func CheckZone(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() || ip.Is4In6() || !ip.IsLinkLocalUnicast() {
		return nil
	}
	names := interfaces()
	zone := ip.Zone()
	switch {
	case zone == "":
		example := "eth0"
		if len(names) > 0 {
			example = names[0]
		}
		return fmt.Errorf("%s is a link-local address, which needs the interface of this host that leads to it: give [%s%%%s]:PORT (this host has %s; the name may differ from host to host)",
			ip, ip, example, orNone(names))
	case !slices.Contains(names, zone) && !isIndex(zone):
		return fmt.Errorf("%s: this host has no interface %s that is up; it has %s (the name may differ from host to host)", ip, zone, orNone(names))
	}
	return nil
}

// isIndex reports whether a zone is the index of an interface.
func isIndex(zone string) bool {
	n, err := strconv.Atoi(zone)
	if err != nil {
		return false
	}
	_, err = net.InterfaceByIndex(n)
	return err == nil
}

// interfaces returns the names of those that are up, the loopback last.
func interfaces() []string {
	all, _ := net.Interfaces() // without them the message says less
	var names, loopback []string
	for _, i := range all {
		switch {
		case i.Flags&net.FlagUp == 0:
		case i.Flags&net.FlagLoopback != 0:
			loopback = append(loopback, i.Name)
		default:
			names = append(names, i.Name)
		}
	}
	return append(names, loopback...)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names[:min(len(names), 8)], ", ")
}

// Addresses returns those of this host that others can use, IPv4 first: neither loopback
// nor link-local ones.
func Addresses() []netip.Addr {
	var list []netip.Addr
	addrs, _ := net.InterfaceAddrs() // without them a message says less
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			list = append(list, p.Addr())
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return list
}

// URLs returns the addresses under which a person reaches a listener at addr, at least
// one. If it listens on all addresses, those that other hosts can use come first.
func URLs(scheme string, addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return []string{scheme + "://" + addr.String()}
	}
	var out []string
	for _, a := range append(Addresses(), netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
		if a.Is4() || tcp.IP.To4() == nil {
			out = append(out, scheme+"://"+netip.AddrPortFrom(a, uint16(tcp.Port)).String())
		}
	}
	return out
}

// Own lists the addresses of this host that others can use, for a message.
func Own() string {
	var list []string
	for _, a := range Addresses() {
		list = append(list, a.String())
	}
	if len(list) == 0 {
		return "127.0.0.1 only"
	}
	return strings.Join(list[:min(len(list), 8)], ", ")
}

// Local is an address of this host.
type Local struct {
	Addr netip.Addr // a link-local IPv6 address has the interface as its zone
	Link int        // index of the interface
}

// Reachable returns the addresses of this host at which others on its networks may reach it:
// all but loopback ones, link-local ones last.
func Reachable() []Local {
	var list []Local
	all, _ := net.Interfaces() // without them a host offers none, and says so
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().IsLoopback() {
				continue
			}
			ip := p.Addr()
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(i.Name)
			}
			list = append(list, Local{ip, i.Index})
		}
	}
	weight := func(l Local) int {
		if l.Addr.IsLinkLocalUnicast() {
			return 1000 + l.Addr.BitLen()
		}
		return l.Addr.BitLen()
	}
	slices.SortStableFunc(list, func(a, b Local) int { return weight(a) - weight(b) })
	return list
}
