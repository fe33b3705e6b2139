package cluster

import (
	"fmt"
	"slices"
	"time"
)

// Which ranks form an epoch. The members of an epoch keep the order of their
// ranks; rank 0 is always one.

// OnLoss is what the leader does when it has lost a rank in an epoch.
type OnLoss int

// The choices of OnLoss.
const (
	// Continue forms the next epoch at once with the remaining ranks, if the planner finds
	// that they can run the model. A rank that returns joins between two pieces of work.
	Continue OnLoss = iota
	// Await forms the next epoch when all ranks are connected.
	Await
	// Fail ends the group.
	Fail
)

var onLossNames = [...]string{"continue", "wait", "fail"}

// String is the name that ParseOnLoss knows.
func (o OnLoss) String() string { return onLossNames[o] }

// ParseOnLoss reads the name of a choice; the error lists them.
func ParseOnLoss(name string) (OnLoss, error) {
	if i := slices.Index(onLossNames[:], name); i >= 0 {
		return OnLoss(i), nil
	}
	return 0, fmt.Errorf("unknown policy %q; expected continue, wait or fail", name)
}

// After flapLosses losses within flapPeriod a rank stays out for params.rejoinAfter.
const (
	flapLosses = 3
	flapPeriod = 10 * time.Minute
)

// forever is the end of an exclusion without end.
const forever = time.Duration(1<<63 - 1)

// exclusion keeps a rank out of epochs.
type exclusion struct {
	until time.Duration
	why   string
}

// candidates are the ranks that can be members of the next epoch, in order.
func (m *stateMachine) candidates() []int {
	var out []int
	for r, x := range m.members {
		if x != nil && !x.leaving && m.excluded(r) == "" {
			out = append(out, r)
		}
	}
	return out
}

// excluded says why a rank stays out for now, "" if it may join.
func (m *stateMachine) excluded(rank int) string {
	if e := m.out[rank]; e != nil && m.now < e.until {
		return e.why
	}
	return ""
}

// exclude keeps a rank out for so long.
func (m *stateMachine) exclude(rank int, d time.Duration, why string) {
	until := forever
	if d < forever-m.now {
		until = m.now + d
	}
	m.out[rank] = &exclusion{until, why}
	m.noteOf(EventOut, rank, "%s stays out %s: %s", m.name(rank), span(d), why)
}

func span(d time.Duration) string {
	if d == forever {
		return "until the leader is restarted"
	}
	return fmt.Sprintf("for %v", d)
}

// lost counts the loss of a rank and excludes one that is lost too often. A rank that is
// still connected but could not do its part always gets a pause, because otherwise the next
// epoch would fail like this one.
func (m *stateMachine) lost(rank int, connected bool, cause string) {
	if rank <= 0 || !m.replaceable() || !connected && m.now < m.forgiven {
		return
	}
	recent := append(m.recent(m.losses[rank]), m.now)
	m.losses[rank] = recent
	switch {
	case len(recent) >= flapLosses:
		m.exclude(rank, m.rejoinAfter, fmt.Sprintf("it was lost %d times in %v, the last time because: %s", len(recent), flapPeriod, cause))
	case connected:
		m.exclude(rank, m.failPause<<(len(recent)-1), cause)
	}
}

// recent drops from a list the times that are longer ago than flapPeriod.
func (m *stateMachine) recent(times []time.Duration) []time.Duration {
	return slices.DeleteFunc(times, func(at time.Duration) bool { return m.now-at >= flapPeriod })
}

// slept says that this rank did not run for the time d: its process was stopped, its host
// slept or was starved, or its clock jumped. The others heard nothing and dropped their
// connections. That is not their fault, so it does not count as a loss.
func (m *stateMachine) slept(d time.Duration) {
	if m.phase == stopped {
		return
	}
	if !m.awoke {
		m.do(note{text: fmt.Sprintf("%s did not run for %v (its process was stopped, its host slept or is overloaded, or its clock jumped): ranks that drop their connection because of that do not count as lost",
			m.name(0), d.Round(100*time.Millisecond)), kind: EventNote, rank: 0, warning: true})
	}
	m.awoke, m.forgiven = true, m.now+m.peerTimeout
}

// enough reports whether the policy lets these ranks form an epoch.
func (m *stateMachine) enough(ranks []int) bool {
	switch {
	case len(ranks) == len(m.members):
		return true
	case !m.replaceable():
		return false
	}
	least := max(m.minRanks, 1)
	if m.disputed {
		least = max(least, 2) // one rank has nothing to compare its results with
	}
	return len(ranks) >= least && !slices.Equal(ranks, m.unfit)
}

// recovering reports whether the next epoch will form without help from a person, so that
// sequences may survive into it.
func (m *stateMachine) recovering() bool {
	switch {
	case !m.everRan || m.onLoss != Continue || m.phase == stopped || m.now > m.recoverBy || m.resume > m.recoverBy:
		return false
	case m.phase == gathering:
		return m.enough(m.candidates())
	}
	return m.phase != running
}

// replan ends the running epoch between two pieces of work, so that the next one has other
// members. Leaving members stay connected until it runs.
func (m *stateMachine) replan(why string) {
	m.wanted = why
	m.boundary()
}

// boundary ends an epoch that waits to be replanned, if no work is open.
func (m *stateMachine) boundary() {
	if m.phase != running || m.wanted == "" || len(m.ledger.open) > 0 {
		return
	}
	why := m.wanted
	m.end(-1, why)
	m.form()
}

// recruit asks connected ranks outside the epoch to prepare for it, and admits those that are
// ready at the next boundary.
func (m *stateMachine) recruit() {
	if m.phase != running || m.onLoss != Continue || m.wanted != "" {
		return
	}
	for r, x := range m.members {
		if x == nil || x.leaving || slices.Contains(m.group, r) || m.excluded(r) != "" {
			continue
		}
		switch {
		case x.prepared == m.epoch && m.brings && x.brought != m.epoch:
		case x.prepared == m.epoch:
			m.replan(m.name(r) + " joins")
			return
		case x.asked != m.epoch:
			x.asked, x.askedAt = m.epoch, m.now
			m.note("%s prepares to join epoch %d", m.name(r), m.epoch)
			m.do(send{x.conn, fmt.Sprintf("rank %d", r), message{Kind: kindPrepare, Epoch: m.epoch, Settings: m.settings, Members: m.group, Addrs: m.addrs(m.group), Hosts: m.hosts(m.group)}})
		case m.now-x.askedAt > m.loadTimeout:
			m.exclude(r, m.failPause, fmt.Sprintf("it did not load the model within %v", m.loadTimeout))
		}
	}
}

// prepared answers kindPrepare; reason is "" or why the rank cannot join.
func (m *stateMachine) prepared(rank int, epoch uint32, reason string) {
	x := m.members[rank]
	switch {
	case x.asked != epoch || slices.Contains(m.group, rank):
	case reason != "":
		x.asked = 0 // so that it is asked again, in this epoch too
		m.exclude(rank, m.failPause, reason)
	case m.brings && epoch == m.epoch && m.phase == running && x.prepared != epoch:
		x.prepared = epoch
		m.do(recruited{x.conn, rank, epoch})
	default:
		x.prepared = epoch
		m.recruit()
	}
}

// waits reports whether a rank has prepared for the successor of the running epoch, and waits
// for data from the program or to join.
func (m *stateMachine) waits(conn int, epoch uint32) bool {
	c := m.conns[conn]
	if c == nil || c.rank < 1 || epoch != m.epoch || m.phase != running || slices.Contains(m.group, c.rank) {
		return false
	}
	x := m.members[c.rank]
	return x.prepared == epoch && x.brought != epoch
}

// bring sends a payload to a rank that waits to join.
func (m *stateMachine) bring(conn int, epoch uint32, payload []byte) {
	m.do(send{conn, fmt.Sprintf("rank %d", m.conns[conn].rank), message{Kind: kindAhead, Epoch: epoch, Payload: payload}})
}

// brought lets a waiting rank join, because the program has sent it all that it needs.
func (m *stateMachine) brought(conn int, epoch uint32) {
	if m.waits(conn, epoch) {
		m.members[m.conns[conn].rank].brought = epoch
		m.recruit()
	}
}

// depart handles the goodbye of a rank. A member stays until an epoch without it runs, if one
// is possible.
func (m *stateMachine) depart(id, rank int, reason string) {
	x := m.members[rank]
	if m.phase != running || !slices.Contains(m.group, rank) || !m.enough(m.without(rank)) || x.leaving {
		m.closed(id, reason)
		return
	}
	m.departs(rank, reason)
}

// departs makes the next epoch form without a member.
func (m *stateMachine) departs(rank int, reason string) {
	x := m.members[rank]
	x.leaving, x.goodbye, x.leavingSince = true, reason, m.now
	m.noteOf(EventLeaves, rank, "%s leaves between two pieces of work: %s", m.name(rank), reason)
	m.replan(fmt.Sprintf("%s leaves: %s", m.name(rank), reason))
}

// release disconnects the ranks that have said goodbye, because the epoch no longer uses
// them.
func (m *stateMachine) release() {
	for r, x := range slices.Clone(m.members) {
		if x != nil && x.leaving {
			m.letGo(r, x.goodbye)
		}
	}
}

// noFit handles candidates that have no plan. Candidates that were not in the last epoch stay
// out. If all were in it, the remaining ranks cannot run the model, and the group waits for
// the others.
func (m *stateMachine) noFit(ranks []int, why string) {
	if !m.replaceable() || len(ranks) == 0 {
		m.judge(-1, why)
		return
	}
	m.phase, m.since, m.group = gathering, m.now, nil
	fresh := slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r == 0 || slices.Contains(m.lastGroup, r) })
	if m.everRan && len(fresh) > 0 && len(fresh) < len(ranks) {
		for _, r := range fresh {
			m.exclude(r, m.failPause, "no plan with it: "+why)
		}
		m.form()
		return
	}
	m.unfit = ranks
	m.resume = m.now + m.retryPause
	if m.last == nil || m.last.Rank < 0 {
		m.last = planError(why)
	}
	m.note("%s cannot run the model without the others: %s%s", m.names(ranks), why, m.waitingFor())
	m.release()
}
