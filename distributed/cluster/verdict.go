package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed"
)

// How an epoch and the group end.

// firstTries is how often the first epoch may fail to connect before the group
// gives up: on a starved host the first attempt may be too slow.
const firstTries = 3

// closed handles the end of a connection, or a reason to end it. If its rank had joined, the
// rank is lost, because no evidence is better.
func (m *stateMachine) closed(id int, cause string) {
	c := m.conns[id]
	if c == nil {
		return
	}
	if cause == noAnswer && c.rank > 0 && m.hears(c.rank) {
		cause += "; what it sends still arrives, so the path to it is cut in one direction, or drops large packets" + compareMTU
	}
	delete(m.conns, id)
	if c.rank < 0 {
		m.do(hangUp{id})
		return
	}
	member := slices.Contains(m.group, c.rank)
	if member {
		m.end(c.rank, cause)
		if m.onLoss == Continue {
			m.resume = m.now // the rank that kept the epoch from forming is gone
		}
	}
	leaving, host := m.members[c.rank].leaving, m.members[c.rank].hello.Host
	m.members[c.rank], m.gone[c.rank] = nil, departure{cause, c.addr, host}
	m.do(hangUp{id})
	if m.phase != stopped {
		m.noteOf(EventLost, c.rank, "%s at %s is gone: %s%s", m.name(c.rank), c.addr, cause, m.waitingFor())
	}
	m.drained(c.rank)
	if member && !leaving {
		m.lost(c.rank, false, cause)
	}
	m.afterLoss()
}

// afterLoss applies the policy when an epoch has ended because of a rank.
func (m *stateMachine) afterLoss() {
	switch {
	case m.phase != gathering || !m.everRan || m.last == nil:
	case m.onLoss == Continue:
		m.form()
	case m.onLoss == Fail:
		m.stop(m.last.Error(), false)
	}
}

// leave handles the orderly exit of a rank, or its request to end the group.
func (m *stateMachine) leave(id, rank int, msg message) {
	if msg.All {
		m.stop(fmt.Sprintf("%s: %s", m.name(rank), msg.Reason), true)
		return
	}
	m.depart(id, rank, msg.Reason)
}

// failed handles a rank's report that it could not form the epoch or do its
// work; missing are the ranks that it could not connect to.
func (m *stateMachine) failed(rank int, epoch uint32, cause string, missing []distributed.Unconnected) {
	switch {
	case epoch != m.epoch:
	case m.phase == connecting && len(missing) > 0:
		m.unconnected(rank, missing)
	case m.phase == connecting && m.suspicion == nil:
		// It may have failed to connect because another rank has just died.
		m.suspicion = &suspicion{peer: rank, cause: cause, epoch: epoch, since: m.now}
	case m.phase == connecting:
	default:
		m.judge(rank, cause)
	}
}

// suspect handles a rank's report that it lost another on the data plane. The verdict waits a
// little for a closed connection, because the other rank is often only the first to stop after
// a third has died.
func (m *stateMachine) suspect(by int, epoch uint32, peer int, cause string, desync bool) {
	if epoch != m.epoch || m.phase != running && m.phase != connecting {
		return
	}
	if !slices.Contains(m.group, peer) || peer == by {
		return
	}
	s := &suspicion{peer, fmt.Sprintf("%s (reported by %s)", cause, m.name(by)), epoch, m.now, by, desync}
	if m.suspicion == nil {
		m.suspicion, m.reports = s, map[int]*suspicion{}
	}
	if m.reports != nil && m.reports[by] == nil {
		m.reports[by] = s
	}
}

// culprit returns the suspicion to act on when its grace is over. clear says that the rank to
// blame is beyond doubt and is not rank 0. When two ranks suspect each other, the one that
// more ranks suspect is to blame, or, if that does not decide, the one that was suspected
// first.
func (m *stateMachine) culprit() (s *suspicion, clear bool) {
	trouble := map[int]int{}
	for by, s := range m.reports {
		trouble[by]++
		trouble[s.peer]++
	}
	best := m.suspicion
	for _, by := range slices.Sorted(maps.Keys(m.reports)) {
		if s := m.reports[by]; trouble[s.peer] > trouble[best.peer] {
			best = s
		}
	}
	clear = best.peer != 0
	for rank, n := range trouble {
		clear = clear && (rank == best.peer || n < trouble[best.peer])
	}
	return best, clear
}

// compareMTU is the cure of a path that drops large packets.
const compareMTU = ": compare the MTU of the interfaces and switches on it"

// hears reports whether rank 0 has just heard from a rank.
func (m *stateMachine) hears(rank int) bool {
	if rank == 0 {
		return true
	}
	x := m.members[rank]
	return x != nil && m.conns[x.conn] != nil && m.now-m.conns[x.conn].heard <= m.peerTimeout/4
}

// lostPath blames the path between two ranks if data on it was not acknowledged while both
// send heartbeats; otherwise it returns "". It looks for "timed out" because every system has
// that in the text of ETIMEDOUT.
func (m *stateMachine) lostPath(s *suspicion) string {
	if !strings.Contains(s.cause, "timed out") || !m.hears(s.peer) || !m.hears(s.by) {
		return ""
	}
	return "; both ranks still send heartbeats, so the path between the two is cut, or drops large packets" + compareMTU
}

// sameResults is the cure for ranks that compute different results.
const sameResults = "the hosts do not compute the same results: compare their versions, memory and processors"

// desynced handles a suspicion that two ranks run different operations, which happens because
// they computed different results. Like diverged, it excludes only a rank that differs from
// more than one other.
func (m *stateMachine) desynced(s *suspicion, clear bool) {
	cause := s.cause + "; " + sameResults
	if clear {
		m.outvoted(cause, s.peer)
		return
	}
	m.dispute(max(s.peer, s.by), cause+unknownWhich) // of two, the follower
}

// outvoted ends the epoch because the majority of the ranks has decided that some compute
// wrongly, and excludes those.
func (m *stateMachine) outvoted(cause string, wrong ...int) {
	m.end(wrong[0], cause)
	m.disputed = false
	for _, rank := range wrong {
		m.exclude(rank, forever, cause)
	}
	m.afterLoss()
}

// judge ends the epoch and blames a rank that is still connected, -1 for none. If no epoch has
// ever run, the whole group ends, because the cause will not go away by itself and a user is
// waiting. Only connecting is retried, up to firstTries times.
func (m *stateMachine) judge(rank int, cause string) {
	connecting := m.phase == connecting
	m.end(rank, cause)
	grows := m.open && rank != 0 // the others may form without the rank, or with one more
	if m.phase == gathering && !m.everRan && m.last != nil && !grows && !(connecting && m.failures < firstTries) {
		m.stop(m.last.Error(), false)
		return
	}
	if m.phase == gathering {
		m.lost(rank, true, cause)
		m.afterLoss()
	}
}

// linkPeriod is how long an epoch must have run before its ranks get a second attempt after a
// suspicion.
const linkPeriod = time.Second

// judgeLink is judge for a suspicion between two live ranks: the fault may be the link between
// them, and another link may exist. Unless the epoch has only just begun, the next one has the
// same members. Two followers that suspect each other first check whether they reach each
// other at all, so that the other ranks do not wait for them to connect.
func (m *stateMachine) judgeLink(s *suspicion) {
	rank, cause := s.peer, s.cause+m.lostPath(s)
	if m.phase != running || m.now-m.since < linkPeriod || m.onLoss != Continue {
		m.judge(rank, cause)
		return
	}
	m.end(rank, cause)
	m.lost(rank, false, cause)
	if s.by > 0 && s.peer > 0 {
		m.suspectLink = [2]int{min(s.by, s.peer), max(s.by, s.peer)}
	}
	m.afterLoss()
}

// end ends the epoch, if there is one, with a verdict.
func (m *stateMachine) end(rank int, cause string) {
	if m.phase == gathering || m.phase == stopped {
		return
	}
	v := &distributed.PeerError{Rank: rank, Cause: cause}
	if rank >= 0 && m.members[rank] != nil {
		v.Addr, v.Host = m.members[rank].addr, m.hostOf(rank)
	}
	ran := m.phase == running
	if ran {
		m.recoverBy = m.now + m.recoverLimit
	} else {
		// The pause is needed because an epoch that could not form rarely succeeds at once.
		m.resume = m.now + m.retryPause<<min(m.failures, 4)
		m.failures++
	}
	m.last, m.suspicion, m.reports, m.ledger.open = v, nil, nil, nil
	m.pairs, m.gaveUp = nil, nil
	m.enter(gathering)
	m.toGroup(verdictMessage(m.epoch, v))
	m.group = nil
	m.do(endEpoch{m.epoch, v, ran, m.noticing})
	m.noteOf(EventEnded, rank, "epoch %d has ended: %v", m.epoch, v)
}

// stop ends the group for good; wanted says that a user asked for it.
func (m *stateMachine) stop(reason string, wanted bool) {
	if m.phase == stopped {
		return
	}
	if m.phase != gathering {
		m.last = &distributed.PeerError{Rank: -1, Cause: reason}
		m.do(endEpoch{m.epoch, m.last, m.phase == running, 0})
	}
	m.ended, m.group = reason, nil
	m.enter(stopped)
	m.toAll(message{Kind: kindShutdown, Reason: reason})
	m.answerDrains(message{Kind: kindShutdown, Reason: reason}, func(int) bool { return true })
	if wanted {
		m.do(stopAll{reason})
	} else {
		m.do(giveUp{reason})
	}
}

// planError is the verdict on ranks that have no plan.
func planError(why string) *distributed.PeerError {
	return &distributed.PeerError{Rank: -1, Cause: why}
}
