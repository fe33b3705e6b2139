package cluster

import (
	"fmt"
	"net"
	"net/netip"
)

// Which addresses of the data plane others are given, and how they dial them.

// listenForData makes this rank's data plane reachable where the ranks have
// reached its control port, and enters the address in the hellos of the epoch's
// members. A leader that listens on all interfaces cannot know the address
// before. mu is held.
func (l *Leader) listenForData(members []Hello) error {
	var reached []string
	for _, m := range members[1:] {
		if o := l.conns[l.sm.members[m.Rank].conn]; o != nil {
			host, _, err := net.SplitHostPort(o.conn.LocalAddr().String())
			if err != nil {
				return fmt.Errorf("data plane: %w", err)
			}
			reached = append(reached, host)
		}
	}
	if host := reachedByAll(reached); host != l.dataHost {
		addr, err := l.cfg.Transport.Listen(host)
		if err != nil {
			return fmt.Errorf("data plane at %s: %w", host, err)
		}
		l.dataHost, l.sm.members[0].hello.Data = host, addr
	}
	members[0].Data = l.sm.members[0].hello.Data
	return nil
}

// reachedByAll picks, from the addresses of this host at which the ranks have
// reached it, one for all of them: a rank on this host reaches the others, too,
// but one on another host cannot use a loopback address.
func reachedByAll(hosts []string) string {
	for _, h := range hosts {
		if a, err := netip.ParseAddr(h); err == nil && !a.Unmap().IsLoopback() {
			return h
		}
	}
	if len(hosts) > 0 {
		return hosts[0]
	}
	return "127.0.0.1"
}

// inZone returns addrs as this host dials them. The zone of a link-local IPv6
// address is the name of an interface on the host that has the address; here it
// is the interface over which this host reaches the leader from local.
func inZone(addrs []string, local net.Addr) []string {
	here, err := netip.ParseAddrPort(local.String())
	if err != nil || here.Addr().Zone() == "" {
		return addrs
	}
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a
		if ap, err := netip.ParseAddrPort(a); err == nil && ap.Addr().Zone() != "" {
			out[i] = netip.AddrPortFrom(ap.Addr().WithZone(here.Addr().Zone()), ap.Port()).String()
		}
	}
	return out
}
