package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// states returns the states of a status.
func states(s Status) []RankState {
	var out []RankState
	for _, r := range s.Ranks {
		out = append(out, r.State)
	}
	return out
}

// kinds returns the kinds of the events about a rank.
func kinds(s Status, rank int) []EventKind {
	var out []EventKind
	for _, e := range s.Events {
		if e.Rank == rank {
			out = append(out, e.Kind)
		}
	}
	return out
}

// TestStatus: what the leader shows while ranks join, one is lost and comes back.
func TestStatus(t *testing.T) {
	r := newRigThat(t, Continue, 3, nil)
	s := r.leader.Status()
	require.Equal(t, []RankState{Joining, Absent, Absent}, states(s))
	require.Equal(t, "gathering", s.Phase)
	require.Contains(t, s.Reason, "waiting for ranks 1 and 2")

	one := r.follow(1, nil)
	r.follow(2, nil)
	e := r.running(0)
	s = r.leader.Status()
	require.Equal(t, []RankState{Member, Member, Member}, states(s))
	require.Equal(t, []int{0, 1, 2}, s.Members)
	require.Empty(t, s.Reason)
	require.NotEmpty(t, s.Transport.Kind)
	require.Contains(t, s.Ranks[1].Addr, "127.0.0.1:")
	require.Equal(t, "cpu avx2", s.Ranks[1].Hello.Kernels)

	r.crash(1, one)
	e = r.running(e.Number)
	s = r.leader.Status()
	require.Equal(t, []RankState{Member, Lost, Member}, states(s))
	require.NotEmpty(t, s.Ranks[1].Why)
	require.Contains(t, s.Ranks[1].Addr, "127.0.0.1:", "where it was")
	require.Empty(t, s.Ranks[1].Hello.Kernels)

	r.follow(1, nil)
	for e.Number < 100 && len(e.Members) < 3 {
		e = r.running(e.Number)
	}
	s = r.leader.Status()
	require.Equal(t, []RankState{Member, Member, Member}, states(s))
	require.Equal(t, []EventKind{EventJoined, EventEnded, EventLost, EventJoined}, kinds(s, 1))
	require.Contains(t, kinds(s, -1), EventFormed)
	for i := 1; i < len(s.Events); i++ {
		require.False(t, s.Events[i].Time.Before(s.Events[i-1].Time))
	}
}

// TestStatusOfRanksThatStayOut: an excluded rank and a leaving one.
func TestStatusOfRanksThatStayOut(t *testing.T) {
	m := newStateMachine(params{self: Hello{Size: 4}})
	m.members[1] = &member{conn: 1, addr: "a"}
	m.members[2] = &member{conn: 2, leaving: true, goodbye: "was told to stop"}
	m.gone[3] = departure{"connection closed", "10.0.0.9:1234", "studio-d"}
	m.now = time.Second
	m.exclude(1, time.Minute, "too often")
	m.exclude(3, forever, "other results")
	m.phase, m.group = running, []int{0, 2}
	m.now = 11 * time.Second
	require.Equal(t, []RankStatus{{State: Member, Hello: m.self}, {State: Out, Why: "too often", For: 50 * time.Second, Addr: "a"},
		{State: Leaving, Why: "was told to stop"}, {State: Out, Why: "other results", Addr: "10.0.0.9:1234", Hello: Hello{Host: "studio-d"}}}, m.ranks())
	m.phase = loading
	require.Equal(t, Forming, m.ranks()[0].State)
	m.now = 2 * time.Minute
	require.Equal(t, Joining, m.ranks()[1].State)
}

// TestEventsAreBounded: the oldest events are dropped, and long texts are cut.
func TestEventsAreBounded(t *testing.T) {
	var e events
	for i := range 3 * maxEvents {
		e.add(EventNote, -1, fmt.Sprint(i))
	}
	require.Len(t, e.list, maxEvents)
	require.Equal(t, fmt.Sprint(2*maxEvents), e.list[0].Text)
	e.add(EventLost, 1, strings.Repeat("x", 10*maxEventText))
	require.Less(t, len(e.list[maxEvents-1].Text), 2*maxEventText)
}
