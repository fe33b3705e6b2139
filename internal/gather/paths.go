package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ringmaster/internal/pairing"
)

// path is a way to the host that leads the group: one of its addresses.
type path struct {
	addr string // as this host dials it, with a zone where it needs one
	link int    // number of the network, at the other host
	err  error  // why it does not work
	rtt  time.Duration
	rate float64 // bytes/s

	conn *pairing.Conn
}

// How a path is measured. Data is sent until measureFor has passed, in requests that double.
const (
	echoes     = 3
	firstLoad  = 4 // frames
	measureFor = 300 * time.Millisecond
	mostPaths  = 32
	// alike is by how much an address must be faster to be better than one before it.
	alike = 1.2
)

// candidates are the addresses of a ticket as this host dials them. A link-local IPv6 address
// is tried on every interface, because it says nothing of the network that it is on. used
// works; it may be an address that the ticket does not have.
func candidates(offered []offer, used string, interfaces []string) []path {
	out := []path{}
	add := func(a string, link int) {
		if !slices.ContainsFunc(out, func(p path) bool { return p.addr == a }) && len(out) < mostPaths {
			out = append(out, path{addr: a, link: link})
		}
	}
	for _, o := range offered {
		ip, err := netip.ParseAddr(o.Addr)
		switch {
		case err != nil || ip.IsUnspecified() || ip.IsMulticast():
		case ip.Is6() && ip.IsLinkLocalUnicast():
			for _, i := range interfaces {
				add(ip.WithZone(i).String(), o.Link)
			}
		default:
			add(ip.String(), o.Link)
		}
	}
	if used != "" {
		add(used, -1)
	}
	return out
}

// upInterfaces are the names of this host's interfaces that are up, without the loopback.
func upInterfaces() (out []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			out = append(out, i.Name)
		}
	}
	return out
}

// prove tries each address: only the group's own host can answer, because it must prove that
// it has the key. The first address of each network that works is measured, one after the
// other, and the rest is left out.
func prove(ctx context.Context, paths []path, desk int, g pairing.Group, key []byte) []path {
	var all sync.WaitGroup
	for i := range paths {
		p := &paths[i]
		all.Go(func() {
			p.conn, _, p.err = pairing.Dial(ctx, net.JoinHostPort(p.addr, strconv.Itoa(desk)), g.ID, pairing.Proof{Key: key})
		})
	}
	all.Wait()
	kept := perNetwork(paths)
	for i := range kept {
		if p := &kept[i]; p.err == nil {
			p.err = p.measure(ctx)
		}
	}
	for _, p := range paths {
		if p.conn != nil {
			p.conn.Close()
		}
	}
	return kept
}

// perNetwork keeps the first path of each network that works, or its first.
func perNetwork(paths []path) (kept []path) {
	for _, p := range paths {
		i := slices.IndexFunc(kept, func(k path) bool { return k.link == p.link })
		switch {
		case i < 0:
			kept = append(kept, p)
		case kept[i].err != nil && p.err == nil:
			kept[i] = p
		}
	}
	return kept
}

// answerLimit bounds the wait for an answer of the desk.
const answerLimit = 5 * time.Second

// measure finds out how fast a path is.
func (p *path) measure(ctx context.Context) error {
	for range echoes {
		start := time.Now()
		if err := p.conn.SendBytes(msgEcho, nil); err != nil {
			return err
		}
		if err := p.expect(ctx, msgEcho); err != nil {
			return err
		}
		if took := time.Since(start); p.rtt == 0 || took < p.rtt {
			p.rtt = took
		}
	}
	begun := time.Now()
	for frames := firstLoad; frames <= mostFrames && time.Since(begun) < measureFor; frames *= 2 {
		start := time.Now()
		if err := p.conn.Send(msgLoad, load{frames}); err != nil {
			return err
		}
		for range frames {
			if err := p.expect(ctx, msgData); err != nil {
				return err
			}
		}
		p.rate = float64(frames*probeFrame) / max(time.Since(start).Seconds(), 1e-9)
	}
	return nil
}

// expect receives a message of a kind.
func (p *path) expect(ctx context.Context, want uint16) error {
	_, err := receive(ctx, p.conn, want)
	return err
}

// receive receives an answer of a kind, or the reason of a refusal as an error.
func receive(ctx context.Context, c *pairing.Conn, want uint16) ([]byte, error) {
	kind, payload, err := c.Receive(ctx, answerLimit)
	switch {
	case err != nil:
		return nil, err
	case kind == msgRefusal:
		r, err := pairing.Read[refusal](payload)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the group refused: %s", clean(r.Reason))
	case kind != want:
		return nil, fmt.Errorf("the group answered with message %d in place of %d: install the same version on both hosts", kind, want)
	}
	return payload, nil
}

// rates are those of the paths that work, by address without zone.
func rates(paths []path) map[string]float64 {
	out := map[string]float64{}
	for _, p := range paths {
		if p.err == nil {
			out[plainAddr(p.addr)] = max(out[plainAddr(p.addr)], p.rate)
		}
	}
	return out
}

// at is the index of the fastest path to an address, -1 if none works; "" is any address.
func at(paths []path, addr string) (best int) {
	best = -1
	for i, p := range paths {
		if p.err == nil && (addr == "" || plainAddr(p.addr) == addr) && (best < 0 || p.rate > paths[best].rate) {
			best = i
		}
	}
	return best
}

// plainAddr is an address without its zone.
func plainAddr(addr string) string {
	plain, _, _ := strings.Cut(addr, "%")
	return plain
}

// describe lists what was found of the paths, for people; used is the index of one, or -1.
func describe(paths []path, used int) string {
	var lines []string
	for i, p := range paths {
		switch {
		case p.err != nil:
			lines = append(lines, fmt.Sprintf("%s does not work (%s)", p.addr, p.why()))
		case i != used:
			lines = append(lines, fmt.Sprintf("%s %s", p.addr, p.speed()))
		case used == at(paths, ""):
			lines = append(lines, fmt.Sprintf("%s %s (used, the fastest)", p.addr, p.speed()))
		default:
			lines = append(lines, fmt.Sprintf("%s %s (used, because it works for all hosts)", p.addr, p.speed()))
		}
	}
	return strings.Join(lines, "; ")
}

// why is in short why a path does not work.
func (p *path) why() string {
	var timeout interface{ Timeout() bool }
	var sys syscall.Errno
	switch {
	case errors.As(p.err, &timeout) && timeout.Timeout():
		return "no answer"
	case errors.As(p.err, &sys):
		return sys.Error()
	}
	return clean(p.err.Error())
}

// speed is what was measured, for people.
func (p *path) speed() string {
	bits := 8 * p.rate
	unit := "bit/s"
	for _, u := range []string{"kbit/s", "Mbit/s", "Gbit/s"} {
		if bits >= 1000 {
			bits, unit = bits/1000, u
		}
	}
	return fmt.Sprintf("%.3g %s, %v", bits, unit, cmp.Or(p.rtt.Round(10*time.Microsecond), 10*time.Microsecond))
}
