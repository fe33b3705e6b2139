package accept

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// mostPending bounds the connections that wait for their proof. Each may hold a frame
// of 64 KiB (package cluster).
const mostPending = 64

// DefaultLimit returns the limit for a Pending of this process. It is at most 64 and at
// most an eighth of the files that the process may open, so that strangers leave enough
// of them for the model, the other ranks and the clients.
func DefaultLimit() int { return max(1, min(mostPending, FileLimit()/8)) }

// Pending holds accepted connections that have not yet proved that they belong here, up
// to a limit. When it is full, a new connection closes the oldest one of the address
// that has the most, so that a stranger that opens many connections closes its own and
// not those of others. Any goroutine may call its methods.
type Pending struct {
	limit int

	mu     sync.Mutex
	conns  []pending // the oldest first
	closed bool
}

type pending struct {
	c    net.Conn
	from string
}

// NewPending returns an empty Pending with room for limit connections.
func NewPending(limit int) *Pending { return &Pending{limit: limit} }

// Add adds a connection and closes another one if Pending is full. After Close it
// closes the connection itself.
func (p *Pending) Add(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return
	}
	if len(p.conns) >= p.limit {
		p.evict()
	}
	p.conns = append(p.conns, pending{c, Origin(c.RemoteAddr())})
}

// Remove takes out a connection without closing it. It reports whether the connection
// was still pending; otherwise Add or Evict has closed it.
func (p *Pending) Remove(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.conns, func(x pending) bool { return x.c == c })
	if i >= 0 {
		p.take(i)
	}
	return i >= 0
}

// Evict closes the connection that Add would close to make room, if any is pending.
func (p *Pending) Evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evict()
}

// Close closes all pending connections and those added later.
func (p *Pending) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, x := range p.conns {
		_ = x.c.Close()
	}
	p.conns = nil
}

// Len returns the number of pending connections.
func (p *Pending) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// evict does what Evict does; mu is held.
func (p *Pending) evict() {
	count := map[string]int{}
	for _, x := range p.conns {
		count[x.from]++
	}
	worst := -1
	for i, x := range p.conns {
		if worst < 0 || count[x.from] > count[p.conns[worst].from] {
			worst = i
		}
	}
	if worst >= 0 {
		_ = p.conns[worst].c.Close()
		p.take(worst)
	}
}

// take removes the connection at i; mu is held.
func (p *Pending) take(i int) { p.conns = append(p.conns[:i:i], p.conns[i+1:]...) }

// Origin returns what counts as one address in limits: an IPv4 address, or the 64-bit
// network of an IPv6 address, because one host may use all addresses of such a network.
func Origin(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if net, err := ip.Prefix(64); err == nil {
			return net.String()
		}
	}
	return ip.String()
}
