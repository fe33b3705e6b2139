package cluster

import (
	"fmt"
	"strings"
	"time"

	"ringmaster/distributed"
)

// action is something that the stateMachine wants done. Its text is the line of
// the transcripts in testdata.
type action interface{ String() string }

type (
	// send sends a message on a connection; to names the receiver in
	// transcripts.
	send struct {
		conn int
		to   string
		m    message
	}
	// hangUp closes a connection.
	hangUp struct{ conn int }
	// askPlan calls Planner.Plan; answered by planned or planFailed.
	askPlan struct {
		epoch   uint32
		members []Hello
	}
	// askFit calls Planner.Fits for the members that would be left without a rank;
	// answered by fitAnswered.
	askFit struct {
		conn, rank int
		members    []Hello
	}
	// askExamine calls Config.Examine; answered by examined.
	askExamine struct {
		conn    int
		request []byte
	}
	// load calls Program.Form on this rank; answered by selfAnswered or failed.
	load struct {
		epoch    uint32
		settings []byte
		ranks    []int // the members
	}
	// connect joins the data plane; answered by selfAnswered or failed.
	connect struct {
		epoch uint32
		token []byte
		addrs []string
		hosts []string
		ranks []int // the members' numbers in the world
	}
	// start calls Program.Start on this rank; answered by started or failed.
	start struct{ epoch uint32 }
	// begun says that the epoch runs, and with how many ranks.
	begun struct {
		epoch uint32
		ranks int
	}
	// endEpoch fails the epoch's group with the verdict.
	endEpoch struct {
		epoch    uint32
		verdict  *distributed.PeerError
		ran      bool          // it had formed
		noticing time.Duration // from the loss to the verdict, as far as it is known
	}
	// settled says that all ranks agree on the work up to this number.
	settled struct{ number uint64 }
	// recruited says that a rank has prepared and waits for what the program sends it.
	// taken says that it has accepted a payload, or why it refused one.
	recruited struct {
		conn, rank int
		epoch      uint32
	}
	taken struct {
		conn   int
		reason string
	}
	// giveUp ends the leader with an error.
	giveUp struct{ reason string }
	// stopAll ends the leader because a user asked for it.
	stopAll struct{ reason string }
	// report delivers a follower's report.
	report struct {
		rank    int
		payload []byte
	}
	// note is a line for the log and for Leader.Status; the number of those that
	// strangers cause is limited.
	note struct {
		text     string
		stranger bool
		warning  bool // a person should look at it
		kind     EventKind
		rank     int // that it is about, -1 for none
	}
)

func (a send) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "-> %s: %v", a.to, a.m.Kind)
	if a.m.Epoch > 0 {
		fmt.Fprintf(&s, " epoch %d", a.m.Epoch)
	}
	switch a.m.Kind {
	case kindForm, kindPrepare:
		fmt.Fprintf(&s, " settings %q", a.m.Settings)
		if len(a.m.Members) > 0 {
			fmt.Fprintf(&s, ", must reach ranks %v", a.m.Members)
		}
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
	case kindShutdown, kindDrained:
		s.WriteString(": " + a.m.Reason)
	}
	return s.String()
}
func (a hangUp) String() string  { return fmt.Sprintf("hang up on connection %d", a.conn) }
func (a askPlan) String() string { return fmt.Sprintf("plan for %d ranks", len(a.members)) }
func (a askFit) String() string {
	return fmt.Sprintf("would %d ranks do without rank %d?", len(a.members), a.rank)
}
func (a askExamine) String() string {
	return fmt.Sprintf("examine for connection %d: %q", a.conn, a.request)
}
func (a load) String() string     { return fmt.Sprintf("load epoch %d settings %q", a.epoch, a.settings) }
func (a connect) String() string  { return fmt.Sprintf("connect epoch %d to %v", a.epoch, a.addrs) }
func (a start) String() string    { return fmt.Sprintf("start epoch %d", a.epoch) }
func (a begun) String() string    { return fmt.Sprintf("epoch %d runs", a.epoch) }
func (a endEpoch) String() string { return fmt.Sprintf("end epoch %d: %v", a.epoch, a.verdict) }
func (a settled) String() string  { return fmt.Sprintf("work %d settled", a.number) }
func (a recruited) String() string {
	return fmt.Sprintf("bring rank %d what it needs for the epoch after %d", a.rank, a.epoch)
}
func (a taken) String() string {
	if a.reason != "" {
		return fmt.Sprintf("connection %d has refused: %s", a.conn, a.reason)
	}
	return fmt.Sprintf("connection %d has taken it", a.conn)
}
func (a giveUp) String() string  { return "give up: " + a.reason }
func (a stopAll) String() string { return "stop: " + a.reason }
func (a report) String() string  { return fmt.Sprintf("report of rank %d: %q", a.rank, a.payload) }
func (a note) String() string    { return "note: " + a.text }
