package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed"
)

// phase is where an epoch stands.
type phase int

const (
	gathering  phase = iota // ranks are missing, or the pause after a failure is not over
	loading                 // every rank runs Program.Form
	connecting              // every rank joins the group
	starting                // this rank runs Program.Start
	running                 // work is handed out
	stopped                 // for good
)

func (p phase) String() string {
	return [...]string{"gathering", "loading", "connecting", "starting", "running", "stopped"}[p]
}

// rules are the numbers a machine goes by.
type rules struct {
	self     Hello  // of the leader
	group    string // id of this run
	describe func(i int) string

	join    time.Duration // until the first epoch all ranks must have come
	silence time.Duration // without a sign of life a rank is lost
	load    time.Duration // for loading
	connect time.Duration // for connecting
	work    time.Duration // for a piece of work
	grace   time.Duration // how long a suspicion waits for better knowledge
	pause   time.Duration // before the next epoch after one that failed to form; doubles up to 16 times it
	final   string        // why no new process can take a lost rank's place, \"\" if one can
}

// machine is the leader's side of the protocol as a pure function of events:
// no sockets, no clock, no goroutines. Each event returns what is to be done, in
// order. Time is given by tick and counts from the start.
type machine struct {
	rules
	now   time.Duration
	phase phase
	since time.Duration // when the phase began
	epoch uint32

	conns   map[int]*conn
	members []*member // [Size] by rank, nil for a missing one; [0] is this rank

	settings []byte
	token    []byte
	last     *distributed.PeerError // verdict of the last epoch, nil after it formed again
	ended    string                 // why the machine stopped
	failures int                    // epochs that failed to form, in a row
	resume   time.Duration          // no epoch forms before
	everRan  bool

	suspicion *suspicion
	ledger    ledger

	out []action
}

// conn is a connection that has authenticated itself.
type conn struct {
	addr  string
	rank  int // -1 before its hello
	heard time.Duration
}

// member is a rank that has joined.
type member struct {
	conn  int // 0 for this rank
	addr  string
	hello Hello
	ready bool // has done what the phase asks
}

// suspicion is what a rank said of another, until it is known better.
type suspicion struct {
	by, peer int
	cause    string
	epoch    uint32
	since    time.Duration
}

// action is something the machine wants done.
type action interface{ String() string }

type (
	send struct { // a message to a connection
		conn int
		to   string // for people
		m    message
	}
	hangUp  struct{ conn int }
	askPlan struct{ members []Hello } // answer with planned
	load    struct {                  // run Program.Form, answer with formed or failed
		epoch    uint32
		settings []byte
	}
	connect struct { // join the group, answer with connected or failed
		epoch uint32
		token []byte
		addrs []string
	}
	start    struct{ epoch uint32 } // run Program.Start, answer with started or failed
	begun    struct{ epoch uint32 } // the epoch runs
	endEpoch struct {               // fail the group of the epoch
		epoch   uint32
		verdict *distributed.PeerError
	}
	settled struct{ number uint64 } // all ranks agree on the work up to this
	giveUp  struct{ reason string } // the leader ends with an error
	stopAll struct{ reason string } // the leader ends because a user wants it
	report  struct {                // a report has come
		rank    int
		payload []byte
	}
	note struct{ text string } // for the log
)

func (a send) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "-> %s: %v", a.to, a.m.Kind)
	if a.m.Epoch > 0 {
		fmt.Fprintf(&s, " epoch %d", a.m.Epoch)
	}
	switch a.m.Kind {
	case kindForm:
		fmt.Fprintf(&s, " settings %q", a.m.Settings)
	case kindConnect:
		fmt.Fprintf(&s, " addresses %v", a.m.Addrs)
	case kindWork:
		fmt.Fprintf(&s, " %d %q", a.m.Number, a.m.Payload)
	case kindVerdict:
		fmt.Fprintf(&s, ": %v", a.m.verdict())
	case kindReject:
		s.WriteString(": " + a.m.Reason)
		if a.m.Retry {
			s.WriteString(" (try again)")
		}
	case kindShutdown:
		s.WriteString(": " + a.m.Reason)
	}
	return s.String()
}
func (a hangUp) String() string   { return fmt.Sprintf("hang up on connection %d", a.conn) }
func (a askPlan) String() string  { return fmt.Sprintf("plan for %d ranks", len(a.members)) }
func (a load) String() string     { return fmt.Sprintf("load epoch %d settings %q", a.epoch, a.settings) }
func (a connect) String() string  { return fmt.Sprintf("connect epoch %d to %v", a.epoch, a.addrs) }
func (a start) String() string    { return fmt.Sprintf("start epoch %d", a.epoch) }
func (a begun) String() string    { return fmt.Sprintf("epoch %d runs", a.epoch) }
func (a endEpoch) String() string { return fmt.Sprintf("end epoch %d: %v", a.epoch, a.verdict) }
func (a settled) String() string  { return fmt.Sprintf("work %d settled", a.number) }
func (a giveUp) String() string   { return "give up: " + a.reason }
func (a stopAll) String() string  { return "stop: " + a.reason }
func (a report) String() string   { return fmt.Sprintf("report of rank %d: %q", a.rank, a.payload) }
func (a note) String() string     { return "note: " + a.text }

func newMachine(r rules) *machine {
	m := &machine{rules: r, conns: map[int]*conn{}, members: make([]*member, r.self.Size)}
	m.members[0] = &member{hello: r.self}
	return m
}

func (m *machine) do(a action)                { m.out = append(m.out, a) }
func (m *machine) note(f string, args ...any) { m.do(note{fmt.Sprintf(f, args...)}) }

// take gives what is to be done, and forgets it.
func (m *machine) take() []action {
	out := m.out
	m.out = nil
	return out
}

func (m *machine) enter(p phase) {
	m.phase, m.since = p, m.now
	for _, x := range m.members {
		if x != nil {
			x.ready = false
		}
	}
}

// toAll sends a message to every follower that is there.
func (m *machine) toAll(msg message) {
	for r, x := range m.members {
		if r > 0 && x != nil {
			m.do(send{x.conn, fmt.Sprintf("rank %d", r), msg})
		}
	}
}

// missing lists the ranks that are not there.
func (m *machine) missing() []int {
	var out []int
	for r, x := range m.members {
		if x == nil {
			out = append(out, r)
		}
	}
	return out
}

// connected takes in a new connection.
func (m *machine) connected(id int, addr string) {
	m.conns[id] = &conn{addr: addr, rank: -1, heard: m.now}
}

// receive takes a message of a connection.
func (m *machine) receive(id int, msg message) {
	c := m.conns[id]
	if c == nil || m.phase == stopped {
		return // hung up already
	}
	c.heard = m.now
	if c.rank < 0 {
		if msg.Kind != kindHello {
			m.reject(id, fmt.Sprintf("the first message is %v, not hello", msg.Kind), false)
			return
		}
		m.hello(id, c, *msg.Hello)
		return
	}
	if msg.Kind == kindHeartbeat {
		return
	}
	if msg.Kind == kindLeave {
		m.leave(id, c.rank, msg)
		return
	}
	if msg.Kind == kindReport {
		m.do(report{c.rank, msg.Payload})
		return
	}
	if msg.Epoch != m.epoch || m.phase == gathering {
		return // of an epoch that has ended
	}
	switch msg.Kind {
	case kindFormed, kindConnected:
		m.answered(c.rank, msg.Kind)
	case kindDone:
		m.done(c.rank, msg.Number, msg.Digest)
	case kindFailed:
		m.failed(c.rank, msg.Epoch, msg.Reason)
	case kindSuspect:
		m.suspect(c.rank, msg.Epoch, msg.Peer, msg.Reason)
	default:
		m.judge(c.rank, fmt.Sprintf("sent %v, which only the leader sends", msg.Kind))
		m.drop(id, "broke the protocol")
	}
}

// hello takes a rank in or turns it away.
func (m *machine) hello(id int, c *conn, h Hello) {
	if why := mismatch(m.self, h); why != "" {
		m.note("rank %d at %s turned away: %s", h.Rank, c.addr, why)
		m.reject(id, why, false)
		return
	}
	if old := m.members[h.Rank]; old != nil && h.Process != "" && h.Process == old.hello.Process {
		// Its old connection is over, only that this has not been read yet:
		// the leader itself stood still, or the link was cut.
		m.closed(old.conn, "it has connected anew")
	}
	if old := m.members[h.Rank]; old != nil {
		quiet := m.now - m.conns[old.conn].heard
		why := fmt.Sprintf("rank %d is taken: %s joined as it, heard %v ago; give each machine a --rank of its own",
			h.Rank, old.addr, quiet.Round(100*time.Millisecond))
		// One that has been quiet may be this very machine before it lost
		// its link; it is lost soon, and then the place is free.
		m.note("%s turned away: %s", c.addr, why)
		m.reject(id, why, quiet > m.silence/4)
		return
	}
	c.rank = h.Rank
	m.members[h.Rank] = &member{conn: id, addr: c.addr, hello: h}
	m.do(send{id, fmt.Sprintf("rank %d", h.Rank), message{Kind: kindWelcome, Group: m.group}})
	m.note("rank %d joined from %s%s", h.Rank, c.addr, m.waitingFor())
	m.form()
}

// waitingFor is the end of a sentence that names the missing ranks.
func (m *machine) waitingFor() string {
	if x := m.missing(); len(x) > 0 {
		return fmt.Sprintf("; waiting for rank %s", list(x))
	}
	return "; all ranks are here"
}

func list(ranks []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
}

// reject turns a connection away.
func (m *machine) reject(id int, why string, retry bool) {
	m.do(send{id, fmt.Sprintf("connection %d", id), message{Kind: kindReject, Reason: why, Retry: retry}})
	m.do(hangUp{id})
	delete(m.conns, id)
}

// form begins an epoch if all ranks are there.
func (m *machine) form() {
	if m.phase != gathering || len(m.missing()) > 0 || m.now < m.resume {
		return
	}
	m.epoch++
	m.suspicion = nil
	m.ledger = ledger{given: m.ledger.given, settled: m.ledger.given} // numbers are never used again
	hellos := make([]Hello, len(m.members))
	for r, x := range m.members {
		hellos[r] = x.hello
	}
	m.enter(loading)
	m.do(askPlan{hellos})
}

// planned is the answer to askPlan; token [32] is fresh.
func (m *machine) planned(settings, token []byte) {
	m.settings, m.token = settings, token
	m.toAll(message{Kind: kindForm, Epoch: m.epoch, Settings: settings})
	m.do(load{m.epoch, settings})
}

// unplanned is the other answer to askPlan: what the ranks have said makes no
// plan possible.
func (m *machine) unplanned(why string) { m.judge(-1, why) }

// answered marks that a rank has done what the phase asks; the last one moves
// the epoch on.
func (m *machine) answered(rank int, k kind) {
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

// selfAnswered gives the answers of this rank: kindFormed and kindConnected.
func (m *machine) selfAnswered(epoch uint32, k kind) {
	if epoch == m.epoch {
		m.answered(0, k)
	}
}

// started is the answer to start.
func (m *machine) started(epoch uint32) {
	if epoch != m.epoch || m.phase != starting {
		return
	}
	m.enter(running)
	m.everRan, m.failures, m.last = true, 0, nil
	m.toAll(message{Kind: kindRun, Epoch: m.epoch})
	m.do(begun{m.epoch})
}

// tick moves the time and finds what it has brought about.
func (m *machine) tick(now time.Duration) {
	m.now = now
	if m.phase == stopped {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.conns)) {
		c := m.conns[id]
		if quiet := now - c.heard; quiet > m.silence {
			m.closed(id, fmt.Sprintf("no heartbeat for %v", quiet.Round(100*time.Millisecond)))
		}
	}
	if s := m.suspicion; s != nil && now-s.since >= m.grace {
		m.suspicion = nil
		m.judge(s.peer, s.cause)
	}
	switch age := now - m.since; {
	case m.phase == gathering && !m.everRan && len(m.missing()) > 0 && age > m.join:
		m.stop(fmt.Sprintf("rank %s did not join within %v; check that it runs, and that it can reach %s",
			list(m.missing()), m.join, "the coordinator"), false)
	case m.phase == gathering && m.final != "" && m.everRan && len(m.missing()) > 0 && age > m.join:
		m.stop(fmt.Sprintf("%v; rank %s has not come back within %v: %s", m.last, list(m.missing()), m.join, m.final), false)
	case m.phase == gathering:
		m.form()
	case m.phase == loading && age > m.load:
		m.judge(m.firstUnready(), fmt.Sprintf("has not loaded the model within %v", m.load))
	case m.phase == connecting && age > m.connect:
		m.judge(m.firstUnready(), fmt.Sprintf("has not connected to all ranks within %v", m.connect))
	case m.phase == running:
		m.overdue()
	}
}

func (m *machine) firstUnready() int {
	for r := len(m.members) - 1; r > 0; r-- { // this rank last: it would have said what is wrong
		if !m.members[r].ready {
			return r
		}
	}
	return 0
}
