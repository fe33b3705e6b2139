package cluster

import (
	"slices"
	"time"

	"ringmaster/distributed"
)

// What the leader shows people about its group.

// RankState is the state of a rank in the group.
type RankState string

// The states of a rank.
const (
	Absent  RankState = "absent"  // has not joined since the leader started
	Lost    RankState = "lost"    // had joined and is lost
	Joining RankState = "joining" // connected, not yet a member of the epoch
	Forming RankState = "forming" // member of an epoch that does not run yet
	Member  RankState = "member"  // of the running epoch
	Leaving RankState = "leaving" // member that leaves between two pieces of work
	Out     RankState = "out"     // connected or not, but kept out for a while
)

// RankStatus is a rank as the leader sees it. Hello and Addr are empty if it has
// not joined.
type RankStatus struct {
	State RankState
	Why   string        // why it is lost, leaving or out
	For   time.Duration // how long it still stays out; 0 if it does not, or for good
	Addr  string        // of its control connection, the last one of a lost rank; "" for rank 0
	Hello Hello         // of a lost rank only Host
}

// Status is the state of a group. Its texts may name addresses.
type Status struct {
	Phase     string                  // gathering, loading, connecting, starting, running or stopped
	Epoch     uint32                  // that runs or forms, or the last one
	Members   []int                   // of the epoch, ascending; none while gathering
	Reason    string                  // why no epoch runs; "" if one does
	Ranks     []RankStatus            // [Size]; in an open group those up to the last that has ever joined
	Transport distributed.Description // of the running epoch
	Events    []Event                 // the last ones, oldest first
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventFormed EventKind = "formed" // an epoch runs
	EventEnded  EventKind = "ended"  // an epoch has ended
	EventJoined EventKind = "joined" // a rank has joined
	EventLost   EventKind = "lost"   // a rank is gone
	EventOut    EventKind = "out"    // a rank is kept out
	EventLeaves EventKind = "leaves" // a rank leaves, or is drained
	EventNote   EventKind = "note"   // anything else
)

// Event is something that happened in the group.
type Event struct {
	Time time.Time
	Kind EventKind
	Rank int // that it is about, -1 for none
	Text string
}

// maxEvents bounds the events that are kept, and maxEventText the bytes of an
// event's text.
const (
	maxEvents    = 200
	maxEventText = 500
)

// events holds the last events. When it is full, the oldest are dropped.
type events struct{ list []Event }

func (e *events) add(kind EventKind, rank int, text string) {
	if len(text) > maxEventText {
		text = text[:maxEventText] + "…"
	}
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, Event{time.Now(), kind, rank, text})
}

// Status returns the state of the group.
func (l *Leader) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Phase: l.sm.phase.String(), Members: slices.Clone(l.sm.group), Ranks: l.sm.ranks(), Events: slices.Clone(l.events.list)}
	var err error
	if s.Epoch, err = l.sm.status(); err != nil {
		s.Reason = err.Error()
	} else if l.run != nil && l.run.Group != nil {
		s.Transport = l.run.Group.Describe()
	}
	return s
}

// departure is what remains known of a rank that is not here.
type departure struct{ cause, addr, host string }

// ranks are all ranks, [Size]; in an open group those up to the last that has ever joined.
func (m *stateMachine) ranks() []RankStatus {
	out := make([]RankStatus, len(m.members))
	for r, x := range m.members {
		s := &out[r]
		if x != nil {
			s.Addr, s.Hello = x.addr, x.hello
		}
		member := slices.Contains(m.group, r)
		why := m.excluded(r)
		left, gone := m.gone[r]
		if x == nil && gone {
			s.Addr, s.Hello.Host = left.addr, left.host
		}
		switch {
		case x != nil && x.leaving:
			s.State, s.Why = Leaving, x.goodbye
		case member && m.phase == running:
			s.State = Member
		case member:
			s.State = Forming
		case why != "":
			s.State, s.Why = Out, why
			if until := m.out[r].until; until != forever {
				s.For = until - m.now
			}
		case x != nil:
			s.State = Joining
		case gone:
			s.State, s.Why = Lost, left.cause
		default:
			s.State = Absent
		}
	}
	for m.open && out[len(out)-1].State == Absent {
		out = out[:len(out)-1]
	}
	return out
}

// Host returns the name of the host of a rank that is or was in the group, "" if it is not
// known.
func (l *Leader) Host(rank int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sm.hostOf(rank)
}
