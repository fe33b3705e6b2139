package cluster

import (
	"fmt"

	"ringmaster/distributed"
)

// closed tells that a connection has ended. A rank that had joined is lost:
// this is the surest sign there is.
func (m *machine) closed(id int, cause string) {
	c := m.conns[id]
	if c == nil {
		return
	}
	delete(m.conns, id)
	if c.rank < 0 {
		m.do(hangUp{id})
		return
	}
	m.end(c.rank, cause)
	m.members[c.rank] = nil
	m.do(hangUp{id})
	if m.phase != stopped {
		m.note("rank %d at %s is gone: %s%s", c.rank, c.addr, cause, m.waitingFor())
	}
}

// drop takes a rank out that is still connected.
func (m *machine) drop(id int, cause string) { m.closed(id, cause) }

// leave takes a rank out that ends in an orderly way.
func (m *machine) leave(id, rank int, msg message) {
	if msg.All {
		m.stop(fmt.Sprintf("rank %d: %s", rank, msg.Reason), true)
		return
	}
	m.closed(id, msg.Reason)
}

// failed tells that a rank could not form the epoch or do its work.
func (m *machine) failed(rank int, epoch uint32, cause string) {
	switch {
	case epoch != m.epoch:
	case m.phase == connecting && m.suspicion == nil:
		// Perhaps it could not connect because another has just died.
		m.suspicion = &suspicion{rank, rank, cause, epoch, m.now}
	case m.phase == connecting:
	default:
		m.judge(rank, cause)
	}
}

// suspect notes that a rank lost another on the data plane. Often the other is
// but the first to stop after a third has died, so the verdict waits a little
// for a closed connection.
func (m *machine) suspect(by int, epoch uint32, peer int, cause string) {
	if epoch != m.epoch || m.phase != running && m.phase != connecting || m.suspicion != nil {
		return
	}
	if peer < 0 || peer >= len(m.members) || peer == by {
		return
	}
	m.suspicion = &suspicion{by, peer, fmt.Sprintf("%s (seen by rank %d)", cause, by), epoch, m.now}
}

// firstTries is how often the first epoch may fail to connect before the group
// gives up: on a starved machine the first attempt may be too slow.
const firstTries = 3

// judge ends the epoch: the rank, which is still there, is at fault. If the group
// has never run it ends altogether, because what is wrong with it will not mend
// itself and a user waits for the answer.
func (m *machine) judge(rank int, cause string) {
	connecting := m.phase == connecting
	m.end(rank, cause)
	if m.phase == gathering && !m.everRan && m.last != nil && !(connecting && m.failures < firstTries) {
		m.stop(m.last.Error(), false)
	}
}

// end ends the epoch with a verdict. Without an epoch there is nothing to end.
func (m *machine) end(rank int, cause string) {
	if m.phase == gathering || m.phase == stopped {
		return
	}
	v := &distributed.PeerError{Rank: rank, Cause: cause}
	if rank >= 0 && m.members[rank] != nil {
		v.Addr = m.members[rank].addr
	}
	if m.phase != running {
		// What could not form will hardly form at once: the pause grows.
		m.resume = m.now + m.pause<<min(m.failures, 4)
		m.failures++
	}
	m.last, m.suspicion = v, nil
	m.enter(gathering)
	m.toAll(verdictMessage(m.epoch, v))
	m.do(endEpoch{m.epoch, v})
	m.note("epoch %d has ended: %v", m.epoch, v)
}

// stop ends the group for good; wanted tells that a user asked for it.
func (m *machine) stop(reason string, wanted bool) {
	if m.phase == stopped {
		return
	}
	if m.phase != gathering {
		m.last = &distributed.PeerError{Rank: -1, Cause: reason}
		m.do(endEpoch{m.epoch, m.last})
	}
	m.ended = reason
	m.enter(stopped)
	m.toAll(message{Kind: kindShutdown, Reason: reason})
	if wanted {
		m.do(stopAll{reason})
	} else {
		m.do(giveUp{reason})
	}
}

// state is the running epoch, or why none runs.
func (m *machine) state() (uint32, error) {
	switch {
	case m.phase == running:
		return m.epoch, nil
	case m.phase == stopped:
		return m.epoch, fmt.Errorf("the group has ended: %s", m.ended)
	case m.last != nil && len(m.missing()) > 0:
		return m.epoch, fmt.Errorf("%w%s", m.last, m.waitingFor())
	case m.last != nil:
		return m.epoch, fmt.Errorf("%w; the group is forming again (%v)", m.last, m.phase)
	case len(m.missing()) > 0:
		return m.epoch, fmt.Errorf("the group is not complete%s", m.waitingFor())
	}
	return m.epoch, fmt.Errorf("the group is forming (%v)", m.phase)
}
