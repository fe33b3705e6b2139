package cluster

import (
	"fmt"
	"slices"
	"time"
)

// ledger tracks the work that has been handed out.
type ledger struct {
	given   uint64  // number of the last piece of work, over all epochs
	settled uint64  // number of the last work on which all ranks agree
	open    []entry // not settled, oldest first
}

// entry is a piece of work that some ranks have not finished.
type entry struct {
	number  uint64
	since   time.Duration
	digests map[int]Digest // of the members that have done it, by rank
}

// awaits reports whether work with this number is open.
func (l *ledger) awaits(number uint64) bool {
	return slices.ContainsFunc(l.open, func(e entry) bool { return e.number == number })
}

// begin numbers a piece of work and sends it to all followers.
func (m *stateMachine) begin(epoch uint32, payload []byte) (uint64, error) {
	m.boundary()
	if n, err := m.status(); err != nil {
		return 0, err
	} else if n != epoch {
		return 0, fmt.Errorf("epoch %d has ended; epoch %d runs", epoch, n)
	}
	l := &m.ledger
	l.given++
	e := entry{number: l.given, since: m.now, digests: map[int]Digest{}}
	l.open = append(l.open, e)
	m.toGroup(message{Kind: kindWork, Epoch: epoch, Number: l.given, Payload: payload})
	return l.given, nil
}

// done notes that a rank has done a piece of work. The digests are compared when the
// last one has arrived.
func (m *stateMachine) done(rank int, number uint64, d Digest) {
	if m.phase != running {
		return
	}
	l := &m.ledger
	for i := range l.open {
		e := &l.open[i]
		if e.number != number || e.has(rank) {
			continue
		}
		e.digests[rank] = d
		m.settle()
		m.boundary()
		return
	}
	m.judge(rank, fmt.Sprintf("reported that it did work %d, which it was never given", number))
}

// settle compares open work that all ranks have done, oldest first.
func (m *stateMachine) settle() {
	l := &m.ledger
	for len(l.open) > 0 {
		e := l.open[0]
		if len(e.digests) < len(m.group) {
			return
		}
		if m.diverged(e) {
			return
		}
		l.open, l.settled = l.open[1:], e.number
		if len(e.digests) > 1 && len(e.digests[0]) > 0 {
			m.disputed = false
		}
		m.do(settled{e.number})
	}
}

// firstDifference names the first position in which two digests differ that both ranks have
// computed.
func (m *stateMachine) firstDifference(a, b Digest) (where string, at int, same bool) {
	if len(a) != len(b) {
		return fmt.Sprintf("the length of its digest (%d instead of %d)", len(b), len(a)), -1, false
	}
	for i := range a {
		if a[i] != b[i] && a[i] != NotComputed && b[i] != NotComputed {
			return m.describe(i), i, false
		}
	}
	return "", -1, true
}

// computed counts the members that have computed position at of a digest; -1: all.
func (m *stateMachine) computed(e entry, at int) int {
	n := 0
	for _, rank := range m.group {
		if at < 0 || e.digests[rank][at] != NotComputed {
			n++
		}
	}
	return n
}

// has reports whether a rank has done the work.
func (e *entry) has(rank int) bool {
	_, ok := e.digests[rank]
	return ok
}

// diverged compares the digests of work that all members have done; false if they are
// equal. Ranks that differ from most others that computed the same compute wrongly and stay
// out. If rank 0 is not in the majority, either rank 0 is wrong or no one knows which rank
// is: see dispute.
func (m *stateMachine) diverged(e entry) bool {
	wrong, where, other, knowing := []int(nil), "", 0, 0
	for i, rank := range m.group {
		for _, before := range m.group[:i] {
			if text, at, same := m.firstDifference(e.digests[before], e.digests[rank]); !same && !slices.Contains(wrong, before) {
				if wrong = append(wrong, rank); where == "" {
					where, other, knowing = text, before, m.computed(e, at)
				}
				break
			}
		}
	}
	if len(wrong) == 0 {
		return false
	}
	cause := fmt.Sprintf("differs from %s in work %d at %s; %s", m.name(other), e.number, where, sameResults)
	if len(m.group) > 2 && m.alone(e) {
		m.dispute(0, fmt.Sprintf("differs from all other ranks, which agree, in work %d at %s; compare its memory and processor with theirs", e.number, where))
		return true
	}
	if m.onLoss == Continue && 2*len(wrong) < knowing {
		m.outvoted(cause, wrong...)
		return true
	}
	m.dispute(wrong[0], cause+unknownWhich)
	return true
}

// alone reports whether all members but rank 0 have equal digests.
func (m *stateMachine) alone(e entry) bool {
	for _, rank := range m.group[1:] {
		if !slices.Equal(e.digests[rank], e.digests[m.group[1]]) {
			return false
		}
	}
	return !slices.Equal(e.digests[0], e.digests[m.group[1]])
}

// overdue blames a rank that sends heartbeats but does not finish its work.
func (m *stateMachine) overdue() {
	for _, e := range m.ledger.open {
		if m.now-e.since <= m.workTimeout {
			return // the rest of the list is younger
		}
		for _, rank := range slices.Backward(m.group) {
			if !e.has(rank) {
				m.judge(rank, fmt.Sprintf("did not finish work %d within %v, although it is responding", e.number, m.workTimeout))
				return
			}
		}
	}
}
