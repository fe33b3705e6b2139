package cluster

import (
	"fmt"
	"time"
)

// ledger holds the work that not all ranks have done.
type ledger struct {
	given   uint64 // number of the last piece of work
	settled uint64 // all ranks agree on the work up to this
	open    []entry
}

// entry is a piece of work under way.
type entry struct {
	number uint64
	since  time.Duration
	by     []Digest // [Size]
	done   []bool   // [Size]
}

// begin numbers a piece of work and sends it.
func (m *machine) begin(epoch uint32, payload []byte) (uint64, error) {
	if e, err := m.state(); err != nil {
		return 0, err
	} else if e != epoch {
		return 0, fmt.Errorf("epoch %d has ended; epoch %d runs", epoch, e)
	}
	l := &m.ledger
	l.given++
	l.open = append(l.open, entry{number: l.given, since: m.now, by: make([]Digest, len(m.members)), done: make([]bool, len(m.members))})
	m.toAll(message{Kind: kindWork, Epoch: epoch, Number: l.given, Payload: payload})
	return l.given, nil
}

// done notes that a rank has done a piece of work. The work of all ranks is
// compared as soon as the last digest is in.
func (m *machine) done(rank int, number uint64, d Digest) {
	if m.phase != running {
		return
	}
	l := &m.ledger
	for i := range l.open {
		e := &l.open[i]
		if e.number != number || e.done[rank] {
			continue
		}
		e.by[rank], e.done[rank] = d, true
		m.settle()
		return
	}
	m.judge(rank, fmt.Sprintf("says it has done work %d, which it was not given", number))
}

// settle compares the work at the head of the ledger as far as it is complete.
func (m *machine) settle() {
	l := &m.ledger
	for len(l.open) > 0 {
		e := l.open[0]
		for _, done := range e.done {
			if !done {
				return
			}
		}
		for rank, d := range e.by {
			if where, ok := m.differ(e.by[0], d); !ok {
				m.diverged(rank, e.number, where)
				return
			}
		}
		l.open, l.settled = l.open[1:], e.number
		m.do(settled{e.number})
	}
}

// differ finds the first position in which two digests differ.
func (m *machine) differ(a, b Digest) (where string, same bool) {
	if len(a) != len(b) {
		return fmt.Sprintf("the length of its digest (%d against %d)", len(b), len(a)), false
	}
	for i := range a {
		if a[i] != b[i] {
			return m.describe(i), false
		}
	}
	return "", true
}

// diverged stops the group for good: ranks that compute different things would
// do so again, and the next answer might be wrong before it is noticed.
func (m *machine) diverged(rank int, number uint64, where string) {
	cause := fmt.Sprintf("differs from rank 0 in work %d at %s; the machines do not compute the same: "+
		"compare their versions, memory and processors", number, where)
	m.judge(rank, cause)
	m.stop(m.last.Error(), false)
}

// overdue looks for a rank that answers but does not get its work done.
func (m *machine) overdue() {
	for _, e := range m.ledger.open {
		if m.now-e.since <= m.work {
			return // the later ones are younger
		}
		for rank := len(e.done) - 1; rank >= 0; rank-- {
			if !e.done[rank] {
				m.judge(rank, fmt.Sprintf("has not done work %d within %v, though it answers", e.number, m.work))
				return
			}
		}
	}
}
