// Package discovery makes a group known on the networks of this host and finds the groups of
// others, by multicast DNS (RFC 6762) and DNS-SD (RFC 6763). What it finds is not
// authenticated: anyone on a network may announce anything.
package discovery

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/mdns"

	"ringmaster/internal/safetext"
)

// service is the type of what is announced.
const service = "_ringmaster._tcp"

// lookEvery is how often interfaces are looked for that came up, and queries are repeated,
// because datagrams get lost.
const lookEvery = time.Second

// Bounds of what others announce.
const (
	mostFound     = 32 // groups
	mostAddresses = 16 // of a group
	mostName      = 64 // bytes
)

// Group is what is announced of a group.
type Group struct {
	ID    string // that tells groups apart
	Name  string
	Addrs []string // HOST:PORT of its host, an address of each network
}

var quiet = log.New(io.Discard, "", 0)

// announcer answers queries on all interfaces.
type announcer struct {
	id, name string
	port     int
	running  map[string]*mdns.Server // by interface and its addresses
}

// Announce makes a group known on all networks that carry multicast, also those that come up
// later, until ctx ends.
func Announce(ctx context.Context, id, name string, port int) {
	a := &announcer{id: id, name: name, port: port, running: map[string]*mdns.Server{}}
	defer func() {
		for _, s := range a.running {
			_ = s.Shutdown() // it always succeeds
		}
	}()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	said := ""
	for {
		if err := a.look(); err != nil && err.Error() != said {
			said = err.Error()
			slog.Warn("the group is not announced on a network, so that hosts there must name this one ('ringmaster join HOST')", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look answers on the interfaces that are up now, and no longer on others.
func (a *announcer) look() (failed error) {
	up, all := multicasting(), []netip.Addr{}
	for _, i := range up {
		all = append(all, addresses(i)...)
	}
	all = all[:min(len(all), mostAddresses)]
	now := map[string]bool{}
	for _, i := range up {
		if len(addresses(i)) == 0 {
			continue
		}
		key := fmt.Sprint(i.Index, i.Name, all)
		now[key] = true
		if a.running[key] != nil {
			continue
		}
		s, err := a.answer(i, all)
		if err != nil {
			failed = fmt.Errorf("%s: %w", i.Name, err)
			continue
		}
		a.running[key] = s
	}
	for key, s := range a.running {
		if !now[key] {
			_ = s.Shutdown()
			delete(a.running, key)
		}
	}
	return failed
}

// answer answers on an interface. All addresses of this host are in each answer, as texts too,
// because a query that arrives on one interface may be answered by the socket of another, and
// who asks keeps one address record.
func (a *announcer) answer(i net.Interface, addrs []netip.Addr) (*mdns.Server, error) {
	txt := []string{"id=" + a.id, "name=" + a.name}
	var ips []net.IP
	for _, addr := range addrs {
		ips, txt = append(ips, addr.AsSlice()), append(txt, "addr="+addr.String())
	}
	zone, err := mdns.NewMDNSService("ringmaster-"+a.id, service, "local.", "ringmaster-"+a.id+".local.", a.port, ips, txt)
	if err != nil {
		return nil, err
	}
	return mdns.NewServer(&mdns.Config{Zone: zone, Iface: &i, Logger: quiet})
}

// multicasting are the interfaces of this host that are up and carry multicast.
func multicasting() (out []net.Interface) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagMulticast != 0 && i.Flags&net.FlagLoopback == 0 {
			out = append(out, i)
		}
	}
	return out
}

// addresses are those of an interface.
func addresses(i net.Interface) (out []netip.Addr) {
	all, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && len(out) < mostAddresses {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// Find reports each group that is announced on this host's networks, again when another
// address of it is found, until ctx ends.
func Find(ctx context.Context, found func(Group)) {
	f := &finder{groups: map[string]*Group{}, found: found}
	for ctx.Err() == nil {
		var round sync.WaitGroup
		for _, i := range multicasting() {
			for _, v6 := range []bool{false, true} { // apart, because one that cannot be sent would end both
				round.Go(func() { f.query(ctx, i, v6) })
			}
		}
		pause := time.NewTimer(lookEvery)
		round.Wait()
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// finder collects what is found.
type finder struct {
	found func(Group)

	mu     sync.Mutex
	groups map[string]*Group // by id
}

// query asks once on an interface.
func (f *finder) query(ctx context.Context, i net.Interface, v6 bool) {
	entries := make(chan *mdns.ServiceEntry, mostFound)
	err := mdns.QueryContext(ctx, &mdns.QueryParam{Service: service, Domain: "local", Timeout: lookEvery, Interface: &i, Entries: entries,
		DisableIPv4: v6, DisableIPv6: !v6, Logger: quiet})
	close(entries)
	for e := range entries { // not before, because the query still changes them
		f.add(e.InfoFields, e.Port, i.Name)
	}
	if err != nil {
		slog.Debug("cannot look for groups on a network", "interface", i.Name, "error", err)
	}
}

// add takes an answer that came over an interface.
func (f *finder) add(fields []string, port int, iface string) {
	g := Group{}
	for _, field := range fields[:min(len(fields), mostAddresses+2)] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "id":
			g.ID = safetext.Line(value, mostName)
		case "name":
			g.Name = safetext.Line(value, mostName)
		case "addr":
			ip, err := netip.ParseAddr(value)
			if err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
				continue
			}
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(iface)
			}
			g.Addrs = append(g.Addrs, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
		}
	}
	if g.ID == "" || g.Name == "" || port < 1 || port > 65535 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.groups[g.ID]
	if known == nil {
		if len(f.groups) >= mostFound {
			return
		}
		known = &Group{ID: g.ID, Name: g.Name}
		f.groups[g.ID] = known
	}
	more := false
	for _, a := range g.Addrs {
		if !slices.Contains(known.Addrs, a) && len(known.Addrs) < mostAddresses {
			known.Addrs, more = append(known.Addrs, a), true
		}
	}
	if more {
		f.found(Group{known.ID, known.Name, slices.Clone(known.Addrs)})
	}
}
