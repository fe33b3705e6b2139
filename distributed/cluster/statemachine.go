package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed"
)

// phase is the stage of an epoch.
type phase int

const (
	gathering  phase = iota // ranks are missing, or the pause after a failure lasts
	loading                 // every rank runs Program.Form
	connecting              // every rank joins the data plane
	starting                // this rank runs Program.Start
	running                 // work is handed out
	stopped                 // for good
)

func (p phase) String() string {
	return [...]string{"gathering", "loading", "connecting", "starting", "running", "stopped"}[p]
}

// params are the constants of a stateMachine.
type params struct {
	self     Hello              // of the leader
	groupID  string             // of this run of the leader
	describe func(i int) string // Planner.Describe

	joinTimeout    time.Duration // for all ranks to join before the first epoch
	peerTimeout    time.Duration // a rank silent for this time is lost
	loadTimeout    time.Duration // for the phase loading
	connectTimeout time.Duration // for the phase connecting
	workTimeout    time.Duration // for a piece of work
	grace          time.Duration // how long a suspicion waits for better evidence
	retryPause     time.Duration // before the next epoch after one that failed to form; doubles up to 16 times
	irreplaceable  string        // why no new process can take a lost rank's place, "" if one can

	onLoss       OnLoss
	minRanks     int           // fewest members of an epoch, with Continue
	open         bool          // ranks that never joined are not awaited
	recoverLimit time.Duration // from a loss to the next epoch; then requests no longer wait for it
	failPause    time.Duration // before a rank that failed, but is connected, may be a member again; doubles
	rejoinAfter  time.Duration // before a rank that was lost too often may be a member again
	drainTimeout time.Duration // before a drained rank leaves although no epoch without it runs
}

// stateMachine is the leader's side of the protocol as a function of events: no
// sockets, no clock, no goroutines. Each event appends to actions, in the
// order in which they must be performed. Time comes from tick and counts from
// the start of the leader.
type stateMachine struct {
	params
	now   time.Duration
	phase phase
	since time.Duration // when the phase began
	epoch uint32

	conns   map[int]*conn
	members []*member // [Size] by rank, nil for a missing one; [0] is this rank

	token    []byte                 // of the epoch, for the data plane
	last     *distributed.PeerError // verdict of the last epoch, nil once the next one runs
	ended    string                 // why the group has ended
	failures int                    // epochs that failed to form, in a row
	resume   time.Duration          // no epoch forms before this time
	everRan  bool

	group     []int // the members of the epoch, ranks in order; nil while gathering
	lastGroup []int // of the last epoch that ran
	settings  []byte
	out       map[int]*exclusion
	losses    map[int][]time.Duration // when each rank was lost
	gone      map[int]departure       // ranks that had joined and are not here
	unfit     []int                   // ranks that have no plan; nil when a rank joins
	brings    bool                    // the program brings something to ranks that have prepared
	examining int                     // requests to examine that are being answered
	wanted    string                  // why the epoch is to be replanned, "" if it is not
	recoverBy time.Duration           // see params.recoverLimit
	disputed  bool                    // the last compared results differed, and the wrong rank is unknown
	disputes  []time.Duration         // when that happened, the last flapPeriod
	noticing  time.Duration           // how long ago the fault that is being judged happened

	suspicion   *suspicion         // nil if there is none
	reports     map[int]*suspicion // the first of each rank, by rank; nil without a suspicion of a rank
	suspectLink [2]int             // two followers that try their link before an epoch connects, until an epoch runs with both; none if both are 0
	ledger      ledger
	pairs       []pair        // of members that reported that they could not connect
	pairsSince  time.Duration // when the first report arrived
	gaveUp      []int         // members that reported

	// Ranks lost before this time dropped the connection because this rank did not run:
	// see slept.
	forgiven time.Duration
	awoke    bool // since the last tick

	actions []action
}

// conn is an authenticated connection.
type conn struct {
	addr  string
	rank  int           // -1 before its hello
	heard time.Duration // when its last message arrived
	// drains is the rank that a drain request on this connection waits for; 0 for none.
	drains int
	// examines: the connection has made a request to examine; busy: its last request is
	// being answered.
	examines, busy bool
}

// member is a rank that has joined.
type member struct {
	conn  int // 0 for this rank
	addr  string
	hello Hello
	ready bool // has done what the phase asks for

	asked, prepared uint32        // the epoch for which it was asked to prepare, and has
	brought         uint32        // the epoch for which the program has sent it all that it needs
	askedAt         time.Duration // when
	leaving         bool          // it leaves; goodbye says why
	goodbye         string
	leavingSince    time.Duration
	drained         bool // it did not ask to leave and must be told
}

// suspicion is a rank's claim that another is lost. The leader does not act on it before
// the grace is over.
type suspicion struct {
	peer   int
	cause  string
	epoch  uint32
	since  time.Duration
	by     int  // who reported it
	desync bool // the two run different operations, so one of them computes wrongly
}

func newStateMachine(p params) *stateMachine {
	m := &stateMachine{params: p, conns: map[int]*conn{}, members: make([]*member, p.self.Size),
		out: map[int]*exclusion{}, losses: map[int][]time.Duration{}, gone: map[int]departure{}}
	m.members[0] = &member{hello: p.self}
	return m
}

func (m *stateMachine) do(a action)                { m.actions = append(m.actions, a) }
func (m *stateMachine) note(f string, args ...any) { m.noteOf(EventNote, -1, f, args...) }

// noteOf adds a note of a kind about a rank.
func (m *stateMachine) noteOf(kind EventKind, rank int, f string, args ...any) {
	m.do(note{text: fmt.Sprintf(f, args...), kind: kind, rank: rank, warning: kind == EventEnded && rank >= 0 || kind == EventLost || kind == EventOut})
}

// noteStranger adds a note about something that was not caused by a rank of the group.
func (m *stateMachine) noteStranger(f string, args ...any) {
	m.do(note{text: fmt.Sprintf(f, args...), stranger: true, warning: true, kind: EventNote, rank: -1})
}

// take returns the pending actions and clears them.
func (m *stateMachine) take() []action {
	out := m.actions
	m.actions = nil
	return out
}

// enter begins a phase, in which no rank is ready yet.
func (m *stateMachine) enter(p phase) {
	m.phase, m.since = p, m.now
	for _, x := range m.members {
		if x != nil {
			x.ready = false
		}
	}
}

// toGroup sends a message to every follower that is a member of the epoch.
func (m *stateMachine) toGroup(msg message) {
	for _, r := range m.group {
		if x := m.members[r]; r > 0 && x != nil {
			m.do(send{x.conn, fmt.Sprintf("rank %d", r), msg})
		}
	}
}

// toAll sends a message to every connected follower.
func (m *stateMachine) toAll(msg message) {
	for r, x := range m.members {
		if r > 0 && x != nil {
			m.do(send{x.conn, fmt.Sprintf("rank %d", r), msg})
		}
	}
}

// missing lists the ranks that are awaited and have not joined. An open group awaits those
// that had joined before.
func (m *stateMachine) missing() []int {
	var out []int
	for r, x := range m.members {
		if _, known := m.gone[r]; x == nil && (known || !m.open) {
			out = append(out, r)
		}
	}
	return out
}

// size is the number of ranks of the group; in an open one, of those that have ever joined.
func (m *stateMachine) size() int {
	if !m.open {
		return len(m.members)
	}
	n := len(m.gone)
	for _, x := range m.members {
		if x != nil {
			n++
		}
	}
	return n
}

// replaceable reports whether the group outlives an epoch that could not form: it continues
// after losses, and has run or may still grow.
func (m *stateMachine) replaceable() bool { return m.onLoss == Continue && (m.everRan || m.open) }

// waitingFor returns the end of a sentence that names the missing ranks.
func (m *stateMachine) waitingFor() string {
	if x := m.missing(); len(x) > 0 {
		return fmt.Sprintf("; waiting for %s", m.names(x))
	}
	if m.open {
		return ""
	}
	return "; all ranks have joined"
}

// hostOf returns the name of the host of a rank that is or was here, else "".
func (m *stateMachine) hostOf(rank int) string {
	if rank >= 0 && rank < len(m.members) && m.members[rank] != nil {
		return m.members[rank].hello.Host
	}
	return m.gone[rank].host
}

// name names a rank for people.
func (m *stateMachine) name(rank int) string { return distributed.RankName(rank, m.hostOf(rank)) }

// names is "rank 1 (studio-a)", "ranks 1 (studio-a) and 2" or "ranks 1, 2 and 3".
func (m *stateMachine) names(ranks []int) string {
	all := make([]string, len(ranks))
	for i, r := range ranks {
		all[i] = strings.TrimPrefix(m.name(r), "rank ")
	}
	if n := len(all); n > 1 {
		return "ranks " + strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return "rank " + strings.Join(all, "")
}

// status returns the running epoch, or why none is running.
func (m *stateMachine) status() (uint32, error) {
	switch {
	case m.phase == running:
		return m.epoch, nil
	case m.phase == stopped:
		return m.epoch, fmt.Errorf("the group has ended: %s", m.ended)
	case m.last != nil && len(m.missing()) > 0:
		return m.epoch, fmt.Errorf("%w%s", m.last, m.waitingFor())
	case m.open && m.unfit != nil:
		return m.epoch, fmt.Errorf("%w; waiting for more hosts to join", m.last)
	case m.last != nil:
		return m.epoch, fmt.Errorf("%w; the group is forming again (%v)", m.last, m.phase)
	case len(m.missing()) > 0:
		return m.epoch, fmt.Errorf("the group is incomplete%s", m.waitingFor())
	}
	return m.epoch, fmt.Errorf("the group is forming (%v)", m.phase)
}

// connected adds an authenticated connection.
func (m *stateMachine) connected(id int, addr string) {
	m.conns[id] = &conn{addr: addr, rank: -1, heard: m.now}
}

// receive handles a message.
func (m *stateMachine) receive(id int, msg message) {
	c := m.conns[id]
	if c == nil || m.phase == stopped {
		return // closed already
	}
	c.heard = m.now
	switch {
	case c.drains > 0:
		return // such a connection sends no other messages
	case c.examines && msg.Kind == kindHeartbeat:
		return
	case c.rank < 0 && msg.Kind == kindExamine:
		m.examine(id, msg.Payload)
		return
	case c.rank < 0 && msg.Kind == kindDrain && !c.examines:
		m.drain(id, msg.Peer)
		return
	case c.rank < 0 && (msg.Kind != kindHello || c.examines):
		m.reject(id, fmt.Sprintf("expected hello as the first message, got %v", msg.Kind), false)
		return
	case c.rank < 0:
		m.hello(id, c, *msg.Hello)
		return
	}
	switch msg.Kind {
	case kindHeartbeat:
		return
	case kindLeave:
		m.leave(id, c.rank, msg)
		return
	case kindReport:
		m.do(report{c.rank, msg.Payload})
		return
	case kindPrepared:
		m.prepared(c.rank, msg.Epoch, msg.Reason)
		return
	case kindTaken:
		if m.waits(id, msg.Epoch) {
			m.do(taken{id, msg.Reason})
		}
		return
	}
	if msg.Epoch != m.epoch || !slices.Contains(m.group, c.rank) {
		return // of an earlier epoch, or of a rank that is not a member
	}
	switch msg.Kind {
	case kindFormed, kindConnected:
		m.answered(c.rank, msg.Kind)
	case kindDone:
		m.done(c.rank, msg.Number, msg.Digest)
	case kindFailed:
		m.failed(c.rank, msg.Epoch, msg.Reason, msg.Missing)
	case kindSuspect:
		m.suspect(c.rank, msg.Epoch, msg.Peer, msg.Reason, msg.Desync)
	default:
		m.judge(c.rank, fmt.Sprintf("sent %v, which only the leader sends", msg.Kind))
		m.closed(id, "protocol violation")
	}
}

// tick advances the time and acts on every timeout that has passed.
func (m *stateMachine) tick(now time.Duration) {
	m.now, m.awoke = now, false
	if m.phase == stopped {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.conns)) {
		c := m.conns[id]
		if c == nil {
			continue // the end of another connection ended this one
		}
		if quiet := now - c.heard; quiet > m.peerTimeout && c.drains == 0 {
			m.noticing = quiet
			m.closed(id, fmt.Sprintf("no heartbeat for %v", quiet.Round(100*time.Millisecond)))
		}
	}
	m.noticing = 0
	m.overstaying()
	switch s := m.suspicion; {
	case m.unconnectedDue():
		m.judgeUnconnected()
	case len(m.pairs) > 0: // other suspicions are consequences
	case s != nil && now-s.since >= m.grace:
		s, clear := m.culprit()
		m.noticing = now - s.since
		if s.desync && m.phase == running && m.onLoss == Continue {
			m.desynced(s, clear)
		} else {
			m.judgeLink(s)
		}
		m.noticing = 0
	}
	switch age := now - m.since; {
	case m.phase == gathering && !m.everRan && !m.open && len(m.missing()) > 0 && age > m.joinTimeout:
		m.stop(fmt.Sprintf("%s did not join within %v; check that every rank is running and can reach the coordinator",
			m.names(m.missing()), m.joinTimeout), false)
	case m.phase == gathering && m.irreplaceable != "" && m.everRan && len(m.missing()) > 0 && age > m.joinTimeout:
		m.stop(fmt.Sprintf("%v; %s did not return within %v: %s", m.last, m.names(m.missing()), m.joinTimeout, m.irreplaceable), false)
	case m.phase == gathering:
		m.form()
	case m.phase == loading && age > m.loadTimeout:
		m.judge(m.firstUnready(), fmt.Sprintf("did not load the model within %v", m.loadTimeout))
	case m.phase == connecting && age > m.connectTimeout:
		m.judge(m.firstUnready(), fmt.Sprintf("did not connect to all ranks within %v", m.connectTimeout))
	case m.phase == running:
		m.overdue()
		m.boundary()
		m.recruit()
	}
}

// firstUnready picks the rank to blame for a phase that takes too long. This rank comes
// last, because it would have reported an error of its own.
func (m *stateMachine) firstUnready() int {
	for _, r := range slices.Backward(m.group) {
		if !m.members[r].ready {
			return r
		}
	}
	return 0
}
