package cluster

import (
	"fmt"
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
		m.noteStranger("rank %d at %s rejected: %s", h.Rank, c.addr, why)
		m.reject(id, why, false)
		return
	}
	if old := m.members[h.Rank]; old != nil && h.Process != "" && h.Process == old.hello.Process {
		// The old connection is over, but its end has not been read yet: the
		// leader itself was stopped, or the link was cut.
		m.closed(old.conn, "it reconnected")
	}
	if old := m.members[h.Rank]; old != nil {
		quiet := m.now - m.conns[old.conn].heard
		why := fmt.Sprintf("rank %d is taken by %s, last heard from %v ago; give each host its own --rank",
			h.Rank, old.addr, quiet.Round(100*time.Millisecond))
		// A rank that has been silent for a while may be this very host,
		// before it lost its link. Its place is free as soon as the silence is
		// long enough, so a later attempt may succeed.
		m.noteStranger("%s rejected: %s", c.addr, why)
		m.reject(id, why, quiet > m.peerTimeout/4)
		return
	}
	c.rank = h.Rank
	m.members[h.Rank] = &member{conn: id, addr: c.addr, hello: h}
	m.do(send{id, fmt.Sprintf("rank %d", h.Rank), message{Kind: kindWelcome, Group: m.groupID}})
	m.note("rank %d joined from %s%s", h.Rank, c.addr, m.waitingFor())
	m.form()
}

// reject sends the reason and closes the connection; retry tells the rank that
// a later attempt may succeed.
func (m *stateMachine) reject(id int, why string, retry bool) {
	m.do(send{id, fmt.Sprintf("connection %d", id), message{Kind: kindReject, Reason: why, Retry: retry}})
	m.do(hangUp{id})
	delete(m.conns, id)
}

// form begins an epoch if all ranks have joined.
func (m *stateMachine) form() {
	if m.phase != gathering || len(m.missing()) > 0 || m.now < m.resume {
		return
	}
	m.epoch++
	m.suspicion = nil
	m.ledger = ledger{given: m.ledger.given, settled: m.ledger.given} // numbers are never reused
	hellos := make([]Hello, len(m.members))
	for r, x := range m.members {
		hellos[r] = x.hello
	}
	m.enter(loading)
	m.do(askPlan{hellos})
}

// planned answers askPlan; token [32] is fresh.
func (m *stateMachine) planned(settings, token []byte) {
	m.token = token
	m.toAll(message{Kind: kindForm, Epoch: m.epoch, Settings: settings})
	m.do(load{m.epoch, settings})
}

// planFailed is the other answer to askPlan: there is no plan for these ranks.
func (m *stateMachine) planFailed(why string) { m.judge(-1, why) }

// answered notes that a rank has done what the phase asks for; the last answer
// moves the epoch on.
func (m *stateMachine) answered(rank int, k kind) {
	if k == kindFormed && m.phase != loading || k == kindConnected && m.phase != connecting {
		return
	}
	m.members[rank].ready = true
	for _, x := range m.members {
		if x == nil || !x.ready {
			return
		}
	}
	if m.phase == loading {
		addrs := make([]string, len(m.members))
		for r, x := range m.members {
			addrs[r] = x.hello.Data
		}
		m.enter(connecting)
		m.toAll(message{Kind: kindConnect, Epoch: m.epoch, Token: m.token, Addrs: addrs})
		m.do(connect{m.epoch, m.token, addrs})
		return
	}
	m.enter(starting)
	m.do(start{m.epoch})
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
	m.everRan, m.failures, m.last = true, 0, nil
	m.toAll(message{Kind: kindRun, Epoch: m.epoch})
	m.do(begun{m.epoch})
}
