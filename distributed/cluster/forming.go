package cluster

import (
	"fmt"
	"slices"
	"time"
)

// Joining, and the phases of an epoch up to running.

// hello admits a rank or rejects it.
func (m *stateMachine) hello(id int, c *conn, h Hello) {
	why := absurd(h)
	if why == "" {
		why = mismatch(m.self, h)
	}
	if why != "" {
		m.noteStranger("%s at %s rejected: %s", h.Name(), c.addr, why)
		m.reject(id, why, false)
		return
	}
	if old := m.members[h.Rank]; old != nil && h.Process != "" && h.Process == old.hello.Process {
		// The old connection is dead, but the leader has not read its end yet, because
		// the leader itself was stopped or the link was cut.
		m.closed(old.conn, "it reconnected")
	}
	if old := m.members[h.Rank]; old != nil {
		quiet := m.now - m.conns[old.conn].heard
		why := fmt.Sprintf("%s is taken by %s, last heard from %v ago; give each host its own --rank",
			old.hello.Name(), old.addr, quiet.Round(100*time.Millisecond))
		// A rank that has been silent for a while may be this same host before it lost
		// its link. A later attempt may succeed, because the rank becomes free when the
		// silence is long enough.
		m.noteStranger("%s at %s rejected: %s", h.Name(), c.addr, why)
		m.reject(id, why, quiet > m.peerTimeout/4)
		return
	}
	c.rank = h.Rank
	m.members[h.Rank] = &member{conn: id, addr: c.addr, hello: h}
	m.unfit = nil
	if m.disputed {
		m.resume = m.now // it can decide the dispute, or its fault was repaired
	}
	delete(m.gone, h.Rank)
	m.do(send{id, fmt.Sprintf("rank %d", h.Rank), message{Kind: kindWelcome, Group: m.groupID}})
	m.noteOf(EventJoined, h.Rank, "%s joined from %s%s", h.Name(), c.addr, m.waitingFor())
	if why := m.excluded(h.Rank); why != "" {
		m.note("%s stays out for now: %s", h.Name(), why)
	}
	m.form()
	m.recruit()
}

// reject sends the reason and closes the connection; retry says that a later attempt may
// succeed.
func (m *stateMachine) reject(id int, why string, retry bool) {
	m.do(send{id, fmt.Sprintf("connection %d", id), message{Kind: kindReject, Reason: why, Retry: retry}})
	m.do(hangUp{id})
	delete(m.conns, id)
}

// form begins an epoch if enough ranks have joined.
func (m *stateMachine) form() {
	if m.phase != gathering || m.now < m.resume {
		return
	}
	ranks := m.candidates()
	if !m.enough(ranks) {
		return
	}
	m.epoch++
	m.suspicion, m.reports, m.wanted = nil, nil, ""
	m.ledger.open = nil // numbers are never reused
	m.group = ranks
	m.enter(loading)
	m.do(askPlan{m.epoch, m.hellos(ranks)})
}

// plans reports whether an epoch is the one that awaits its plan. When several ranks are
// lost at once, an epoch may end before the planner is asked.
func (m *stateMachine) plans(epoch uint32) bool { return epoch == m.epoch && m.phase == loading }

// planned answers askPlan; token [32] is fresh.
func (m *stateMachine) planned(epoch uint32, settings, token []byte) {
	if !m.plans(epoch) {
		return
	}
	m.token, m.settings = token, settings
	form := message{Kind: kindForm, Epoch: m.epoch, Settings: settings}
	if m.hasSuspectLink() {
		form.Members, form.Addrs, form.Hosts = slices.Clone(m.suspectLink[:]), m.addrs(m.suspectLink[:]), m.hosts(m.suspectLink[:])
	}
	m.toGroup(form)
	m.do(load{m.epoch, settings, m.group})
}

// planFailed is the other answer to askPlan: these ranks have no plan.
func (m *stateMachine) planFailed(epoch uint32, why string) {
	if m.plans(epoch) {
		m.noFit(m.group, why)
	}
}

// answered notes that a rank has done what the phase asks for. The last answer moves the
// epoch to its next phase.
func (m *stateMachine) answered(rank int, k kind) {
	if k == kindFormed && m.phase != loading || k == kindConnected && m.phase != connecting {
		return
	}
	m.members[rank].ready = true
	if slices.ContainsFunc(m.group, func(r int) bool { return !m.members[r].ready }) {
		return
	}
	if m.phase == loading {
		addrs := m.addrs(m.group)
		m.enter(connecting)
		m.toGroup(message{Kind: kindConnect, Epoch: m.epoch, Token: m.token, Addrs: addrs, Hosts: m.hosts(m.group), Members: m.group})
		m.do(connect{m.epoch, m.token, addrs, m.hosts(m.group), m.group})
		return
	}
	m.enter(starting)
	m.do(start{m.epoch})
}

// hasSuspectLink reports whether both ends of the suspect link are members.
func (m *stateMachine) hasSuspectLink() bool {
	return m.suspectLink != [2]int{} && slices.Contains(m.group, m.suspectLink[0]) && slices.Contains(m.group, m.suspectLink[1])
}

// addrs returns the addresses of the data planes of connected ranks.
func (m *stateMachine) addrs(ranks []int) []string {
	out := make([]string, len(ranks))
	for i, r := range ranks {
		out[i] = m.members[r].hello.Data
	}
	return out
}

// hosts returns the names of the hosts of connected ranks, nil if all are unknown.
func (m *stateMachine) hosts(ranks []int) []string {
	out := make([]string, len(ranks))
	for i, r := range ranks {
		out[i] = m.members[r].hello.Host
	}
	if !slices.ContainsFunc(out, func(host string) bool { return host != "" }) {
		return nil
	}
	return out
}

// selfAnswered is answered for this rank: k is kindFormed or kindConnected.
func (m *stateMachine) selfAnswered(epoch uint32, k kind) {
	if epoch == m.epoch {
		m.answered(0, k)
	}
}

// started answers start.
func (m *stateMachine) started(epoch uint32) {
	if epoch != m.epoch || m.phase != starting {
		return
	}
	m.enter(running)
	if m.hasSuspectLink() {
		m.suspectLink = [2]int{} // the suspect link works
	}
	m.everRan, m.failures, m.last, m.lastGroup = true, 0, nil, m.group
	m.toGroup(message{Kind: kindRun, Epoch: m.epoch})
	m.do(begun{m.epoch, len(m.group)})
	m.release()
	m.recruit()
}
