package cluster

import (
	"fmt"
	"net"
	"net/netip"
)

// Which addresses of the data plane the other ranks receive, and how they dial
// them.

// listenForData makes this rank's data plane reachable where the ranks have
// reached its control port, and enters the address in the hellos of the epoch's
// members. This cannot happen earlier, because a leader that listens on all
// interfaces learns the address only from them. mu is held.
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
	if len(reached) > 0 || l.dataHost == "" { // alone, any address will do
		if err := l.listenAt(reachedByAll(reached)); err != nil {
			return err
		}
	}
	members[0].Data = l.sm.members[0].hello.Data
	return nil
}

// listenAt moves this rank's data plane to one of its addresses. mu is held.
func (l *Leader) listenAt(host string) error {
	if host == l.dataHost {
		return nil
	}
	addr, err := l.cfg.Transport.Listen(host)
	if err != nil {
		return fmt.Errorf("data plane at %s: %w", host, err)
	}
	l.dataHost, l.sm.members[0].hello.Data = host, addr
	return nil
}

// listenFor makes the data plane of this rank, which runs an epoch alone, reachable for a rank
// that prepares to join, and returns its address in place of the one before. mu is held.
func (l *Leader) listenFor(o *outbox, before []string) []string {
	host, _, err := net.SplitHostPort(o.conn.LocalAddr().String())
	if err == nil {
		err = l.listenAt(reachedByAll([]string{host, l.dataHost}))
	}
	if err != nil {
		l.cfg.Log.Warn("a rank that joins may not reach the data plane", "error", err)
		return before
	}
	return []string{l.sm.members[0].hello.Data}
}

// reachedByAll picks one address for all ranks from those at which they have
// reached this host. It avoids loopback addresses, because a rank on another
// host cannot use them, while a rank on this host reaches all of its addresses.
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

// inZone returns addrs as this host dials them. It replaces the zone of a
// link-local IPv6 address, because a zone names an interface of the host that
// uses it: here the one over which this host reaches the leader from local.
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
