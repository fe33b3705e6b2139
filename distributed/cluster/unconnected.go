package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed"
)

// Which rank is to blame when the ranks of an epoch cannot all connect. Each rank that gives
// up reports the ranks that it is not connected to. A single report says little, because one
// end cannot tell which firewall drops its packets. Together they show which rank is
// unreachable.

// linkGrace is how long the leader waits for more reports after the first. It can be short
// because all ranks begin to connect, and give up, at about the same time.
const linkGrace = time.Second

// mostPairs is how many pairs of ranks a verdict describes.
const mostPairs = 8

// pair is a connection that was not made.
type pair struct {
	from, to int // from dials
	cause    string
	proved   bool // the network kept from from connecting
}

// missingOf returns the unconnected ranks that an error of Transport.Connect lists.
func missingOf(err error) []distributed.Unconnected {
	if u, ok := errors.AsType[*distributed.UnconnectedError](err); ok {
		return u.Missing
	}
	return nil
}

// unconnected handles the report of a member that could not connect to others.
func (m *stateMachine) unconnected(by int, missing []distributed.Unconnected) {
	if m.pairs == nil {
		m.pairsSince = m.now
	}
	m.gaveUp = append(m.gaveUp, by)
	for _, u := range missing {
		if !slices.Contains(m.group, u.Rank) || u.Rank == by || u.Dialled != (u.Rank < by) {
			continue // no correct rank reports that
		}
		p := pair{from: by, to: u.Rank, cause: u.Cause, proved: u.Unreachable}
		if !u.Dialled {
			p.from, p.to = u.Rank, by
		}
		same := func(q pair) bool { return q.from == p.from && q.to == p.to }
		switch i := slices.IndexFunc(m.pairs, same); {
		case i < 0:
			m.pairs = append(m.pairs, p)
		case u.Dialled: // the end that dials has the error
			m.pairs[i] = p
		}
	}
}

// unconnectedDue reports whether the leader can judge: every rank that dials has answered,
// or has had the time to.
func (m *stateMachine) unconnectedDue() bool {
	if m.phase != connecting || len(m.pairs) == 0 {
		return false
	}
	silent := func(r int) bool { return !m.members[r].ready && !slices.Contains(m.gaveUp, r) }
	return m.now-m.pairsSince >= linkGrace || !slices.ContainsFunc(m.group[1:], silent)
}

// judgeUnconnected ends the epoch and blames the rank with the most failed connections. Rank
// 0 cannot stay out, so the ranks that do not reach it stay out instead.
func (m *stateMachine) judgeUnconnected() {
	slices.SortFunc(m.pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	pairs := m.pairs
	if proved := slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return !p.proved }); len(proved) > 0 {
		pairs = proved
	}
	culprit := pairs[0].to
	trouble := map[int]int{}
	for _, p := range pairs {
		trouble[p.from]++
		trouble[p.to]++
	}
	for _, p := range pairs { // of two ends with equally many failures, the one that is dialled
		for _, r := range []int{p.to, p.from} {
			if trouble[r] > trouble[culprit] {
				culprit = r
			}
		}
	}
	cause := m.blame(culprit, m.pairs)
	if culprit != 0 {
		m.judge(culprit, cause)
		return
	}
	m.judge(0, cause)
	for _, p := range pairs {
		if m.phase == gathering && p.to == 0 && m.members[p.from] != nil {
			m.lost(p.from, true, cause)
		}
	}
}

// blame describes what a rank is blamed for and lists every pair.
func (m *stateMachine) blame(culprit int, pairs []pair) string {
	var reach, others []string
	callers, failed := 0, 0 // ranks that dial the culprit, and how many of them do not reach it
	for _, r := range m.group {
		if r > culprit {
			callers++
		}
	}
	for _, p := range pairs {
		text := fmt.Sprintf("%s does not reach %s", m.name(p.from), p.cause)
		if !p.proved {
			text = fmt.Sprintf("%s is not connected to %s: %s", m.name(p.from), m.name(p.to), p.cause)
		}
		if p.to == culprit {
			failed++
		}
		if p.to == culprit || p.from == culprit {
			reach = append(reach, text)
		} else {
			others = append(others, text)
		}
	}
	all := append(reach, others...)
	if n := len(all); n > mostPairs {
		all = append(all[:mostPairs], fmt.Sprintf("and %d more pairs of ranks", n-mostPairs))
	}
	text := "did not connect to all ranks: "
	if failed == callers && callers > 0 {
		text = "no rank reaches its data plane: "
	}
	return text + strings.Join(all, "; ") + m.translated(culprit)
}

// translated says that a rank's data plane has another address than its control connection,
// which an address translation (NAT) causes; "" if the addresses agree.
func (m *stateMachine) translated(rank int) string {
	x := m.members[rank]
	if rank == 0 || x == nil {
		return ""
	}
	return translation(x.hello.Data, x.addr)
}

// translation compares the address that a rank gives for its data plane with the one at
// which it is seen.
func translation(data, seen string) string {
	a, err1 := hostOf(data)
	b, err2 := hostOf(seen)
	if err1 != nil || err2 != nil || a == b {
		return ""
	}
	return fmt.Sprintf("; its data plane is at %v, but it is seen at %v: an address translation (NAT) lies between, so give the hosts a network without one, such as a VPN", a, b)
}

// hostOf is the address in HOST:PORT without its zone.
func hostOf(addr string) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap().WithZone(""), err
}
