package bringup

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/network"
)

// Apple's provider looks up the peer's address in the neighbour cache of the host but does not fill the cache. So
// after boot the transition to RTR fails on both sides with errno 60, as it does over a crossed cable. The known
// cure is a ping of all nodes on both hosts. Here each host sends the peer a datagram instead, because that needs
// no program and no permissions. The kernel then asks for the neighbour and includes its own address in the
// question, so that both caches are filled (RFC 4861, 7.2.2 and 7.2.3).

const (
	// knockPort is the discard service (RFC 863). No service needs to listen there, because a refusal is enough of
	// an answer.
	knockPort = 9
	// knockLimit is how long a host waits for the answer. It is three seconds because the kernel asks for a
	// neighbour three times, a second apart (RFC 4861, 10). It is needed because a host may drop the datagram
	// silently.
	knockLimit = 3 * time.Second
)

// reachAgain handles rails on which the peer was not reached: both hosts ask for their neighbours, and both ends
// make new queue pairs and connect them. It does so once for each port, because a port that is still not reached
// has another cable.
func (b *bringup) reachAgain(ctx context.Context, pairs []railPair, all [][]address) error {
	var mine []int
	for _, e := range b.ends {
		if i := slices.Index(pairs, e.pair); e.dev.frames && verbs.Unreachable(e.bad) && b.untried(e.pair) {
			mine = append(mine, i)
		}
	}
	lists, err := vote(ctx, b, "reach the peers", mine, nil)
	if err != nil {
		return err
	}
	again := map[railPair]int{}
	for r, list := range lists {
		for _, i := range list {
			if i < 0 || i >= len(pairs) {
				return b.mismatch(r, "names rail %d, but only %d exist", i, len(pairs))
			}
			again[pairs[i]] = i
		}
	}
	if len(again) == 0 {
		return nil
	}
	for p := range again {
		for _, name := range ports(p) {
			b.triedNeighbours[name] = true
		}
	}
	var meeting sync.WaitGroup
	var fresh []address
	for _, e := range b.ends {
		i, ok := again[e.pair]
		if !ok {
			continue
		}
		if far, ok := find(all[e.Peer], i); ok {
			for _, g := range far.GIDs {
				meeting.Go(func() { meet(ctx, b.interfaceOf(e.Device), g, knockPort, knockLimit) })
			}
		}
		if e.bad = e.renew(); e.bad == nil {
			fresh = append(fresh, e.address(i, b.format))
		}
	}
	meeting.Wait()
	// The vote ensures that no rank connects before all have asked for their neighbours.
	if all, err = vote(ctx, b, "remake queue pairs", fresh, nil); err != nil {
		return err
	}
	for _, e := range b.ends {
		i, ok := again[e.pair]
		if !ok || e.bad != nil {
			continue
		}
		if far, ok := find(all[e.Peer], i); ok {
			e.bad = b.connectEnd(e, far)
		} else {
			e.bad = fmt.Errorf("%w: rank %d could not remake its queue pair", distributed.ErrBootstrap, e.Peer)
		}
	}
	return nil
}

// ports names the two ports of a rail.
func ports(p railPair) [2]string {
	return [2]string{fmt.Sprintf("%d %s", p.RankA, p.DeviceA), fmt.Sprintf("%d %s", p.RankB, p.DeviceB)}
}

// untried reports whether a port of the rail has not yet asked for its neighbours.
func (b *bringup) untried(p railPair) bool {
	x := ports(p)
	return !b.triedNeighbours[x[0]] || !b.triedNeighbours[x[1]]
}

// renew replaces the queue pair of an end, because after a failed transition Apple's provider accepts no other
// attempt on the same one.
func (e *end) renew() error {
	if err := e.dev.ctx.Err(); err != nil {
		return err // the end may have no queue pair now
	}
	if err := e.QP.Destroy(); err != nil {
		return err
	}
	e.Free()
	qp, err := e.dev.pd.CreateQP(e.cfg)
	if err != nil {
		return err
	}
	e.QP = qp
	return qp.Init(1)
}

// interfaceOf returns the network interface of a device, "" if it is unknown.
func (b *bringup) interfaceOf(device string) string {
	for _, d := range b.Tools.Devices {
		if d.Name == device && d.Interface != "" {
			return d.Interface
		}
	}
	name, _ := strings.CutPrefix(device, "rdma_")
	if name == device {
		return ""
	}
	return name
}

// meet sends a datagram to the neighbour with an address on an interface, and waits at most limit for its refusal.
// The next transition shows whether it helped.
func meet(ctx context.Context, iface string, g verbs.GID, port int, limit time.Duration) {
	if iface == "" {
		return
	}
	a := g.Addr()
	if a.IsLinkLocalUnicast() && a.Is6() {
		a = a.WithZone(iface)
	}
	udp := "udp6"
	if a.Is4() {
		udp = "udp4"
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := network.Dialer().DialContext(ctx, udp, net.JoinHostPort(a.String(), strconv.Itoa(port)))
	if err != nil {
		return // this host has no such interface
	}
	defer c.Close()
	if until, ok := ctx.Deadline(); ok && c.SetDeadline(until) != nil {
		return
	}
	if _, err := c.Write([]byte{0}); err == nil {
		_, _ = c.Read(make([]byte, 1))
	}
}
