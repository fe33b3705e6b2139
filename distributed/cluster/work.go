package cluster

import (
	"fmt"
	"time"
)

// ledger keeps account of the work that has been handed out.
type ledger struct {
	given   uint64  // number of the last piece of work, over all epochs
	settled uint64  // all ranks agree on the work up to this number
	open    []entry // not settled, oldest first
}

// entry is a piece of work that some ranks have not finished.
type entry struct {
	number  uint64
	since   time.Duration
	digests []Digest // [Size]
	done    []bool   // [Size]
}

// begin numbers a piece of work and sends it to all followers.
func (m *stateMachine) begin(epoch uint32, payload []byte) (uint64, error) {
	if e, err := m.status(); err != nil {
		return 0, err
	} else if e != epoch {
		return 0, fmt.Errorf("epoch %d has ended; epoch %d runs", epoch, e)
	}
	l := &m.ledger
	l.given++
	l.open = append(l.open, entry{number: l.given, since: m.now, digests: make([]Digest, len(m.members)), done: make([]bool, len(m.members))})
	m.toAll(message{Kind: kindWork, Epoch: epoch, Number: l.given, Payload: payload})
	return l.given, nil
}

// done notes that a rank has done a piece of work. The digests are compared as
// soon as the last one is in.
func (m *stateMachine) done(rank int, number uint64, d Digest) {
	if m.phase != running {
		return
	}
	l := &m.ledger
	for i := range l.open {
		e := &l.open[i]
		if e.number != number || e.done[rank] {
			continue
		}
		e.digests[rank], e.done[rank] = d, true
		m.settle()
		return
	}
	m.judge(rank, fmt.Sprintf("reported work %d as done, which it was never given", number))
}

// settle compares the oldest open work, as far as all ranks have done it.
func (m *stateMachine) settle() {
	l := &m.ledger
	for len(l.open) > 0 {
		e := l.open[0]
		for _, done := range e.done {
			if !done {
				return
			}
		}
		for rank, d := range e.digests {
			if where, ok := m.firstDifference(e.digests[0], d); !ok {
				m.diverged(rank, e.number, where)
				return
			}
		}
		l.open, l.settled = l.open[1:], e.number
		m.do(settled{e.number})
	}
}

// firstDifference names the first position in which two digests differ.
func (m *stateMachine) firstDifference(a, b Digest) (where string, same bool) {
	if len(a) != len(b) {
		return fmt.Sprintf("the length of its digest (%d instead of %d)", len(b), len(a)), false
	}
	for i := range a {
		if a[i] != b[i] {
			return m.describe(i), false
		}
	}
	return "", true
}

// diverged stops the group for good: ranks that compute different results would
// do so again, and the next answer might be wrong before anyone notices.
func (m *stateMachine) diverged(rank int, number uint64, where string) {
	cause := fmt.Sprintf("differs from rank 0 in work %d at %s; the hosts do not compute the same results: "+
		"compare their versions, memory and processors", number, where)
	m.judge(rank, cause)
	m.stop(m.last.Error(), false)
}

// overdue blames a rank that sends heartbeats but does not finish its work.
func (m *stateMachine) overdue() {
	for _, e := range m.ledger.open {
		if m.now-e.since <= m.workTimeout {
			return // the later ones are younger
		}
		for rank := len(e.done) - 1; rank >= 0; rank-- {
			if !e.done[rank] {
				m.judge(rank, fmt.Sprintf("did not finish work %d within %v, although it is responding", e.number, m.workTimeout))
				return
			}
		}
	}
}
