package launch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long ranks have to end before they are asked again, with more force.
	// Ranks with RDMA devices get more time: with Apple's provider a process that ends
	// without giving them back leaves queue pairs used up until a power cycle.
	patience     = 2 * time.Second
	rdmaPatience = 10 * time.Second
	// mostPause is the longest pause before a rank is restarted.
	mostPause = time.Minute
	// failsAtOnce is how long a rank runs at most that fails because of its flags or files.
	failsAtOnce = 10 * time.Second
)

// RanksError says that ranks failed.
type RanksError struct {
	Code int    // the highest exit code of the ranks
	Name string // the rank that had it
}

// Error says which rank failed.
func (e *RanksError) Error() string {
	return fmt.Sprintf("%s ended with exit code %d", e.Name, e.Code)
}

// Exit codes of processes that a signal ended are 128 and more, as a shell gives them.
const (
	bySignal    = 128
	interrupted = bySignal + int(syscall.SIGINT)
	killed      = bySignal + int(syscall.SIGKILL)
)

// event is something that happens to a rank.
type event struct {
	rank  int
	start bool // the pause before it is started again is over; else it has ended
	code  int
}

// seat is a rank while the group runs.
type seat struct {
	process *process    // nil before it is started, and in the pause before it is started again
	deaths  int         // in a row
	pause   *time.Timer // until it is started again; nil: none
	done    bool        // it is not started again
	code    int         // of its end, once done
}

// runner runs the ranks of a group. One goroutine handles all events.
type runner struct {
	*group
	seats    []seat
	events   chan event
	stopping int // how often the ranks have been told to stop
	urge     *time.Timer
	left     int // ranks that are not done
}

// run starts the ranks and waits for their ends.
func (g *group) run(ctx context.Context) error {
	r := &runner{group: g, seats: make([]seat, g.size), events: make(chan event, 4*g.size), left: g.size}
	where := "this host"
	if len(g.Hosts) > 0 {
		where = strings.Join(g.Hosts, " ")
	}
	g.say("%d ranks on %s; rank 0 will serve %s (Ctrl-C stops all)", g.size, where, g.serves())
	if len(g.Hosts) > 0 && g.Key == "" {
		g.say("warning: without --key-file anyone who can reach %s can join the cluster", g.coordinator)
	}
	defer r.killAll()
	for rank := range g.size {
		r.start(rank)
	}
	signals := make(chan os.Signal, 4)
	defer signal.Stop(signals)
	ended, urge := ctx.Done(), (<-chan time.Time)(nil)
	for r.left > 0 {
		select {
		case e := <-r.events:
			r.handle(e)
		case <-ended:
			ended = nil
			// The program's handler of the first signal is gone now; the next ones come here.
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			r.stop()
		case <-signals:
			r.stop()
		case <-urge:
			r.stop()
		}
		urge = nil
		if r.urge != nil {
			urge = r.urge.C
		}
	}
	worst := 0
	for rank, s := range r.seats {
		if s.code > r.seats[worst].code {
			worst = rank
		}
	}
	if code := r.seats[worst].code; code != 0 {
		return &RanksError{code, g.name(worst)}
	}
	return nil
}

// serves says where rank 0 will serve.
func (g *group) serves() string {
	listen := g.Listen
	if listen == "" {
		listen = "127.0.0.1:8080"
	}
	if len(g.Hosts) > 0 {
		return listen + " on " + g.Hosts[0]
	}
	return "http://" + listen
}

// start starts a rank. A rank that cannot be started has failed at once.
func (r *runner) start(rank int) {
	args := r.arguments(rank)
	if len(r.Hosts) > 0 {
		args = r.onHost(rank)
	}
	p, err := startProcess(args, len(r.Hosts) > 0, func(line string) { r.print(r.Logs, r.prefix(rank)+line) })
	if err != nil {
		r.say("%s: %v", r.name(rank), err)
		r.events <- event{rank: rank, code: 1}
		return
	}
	r.seats[rank].process = p
	go func() { r.events <- event{rank: rank, code: p.wait()} }()
}

// prefix begins the lines of a rank.
func (g *group) prefix(rank int) string {
	if len(g.Hosts) == 0 {
		return fmt.Sprintf("[%d] ", rank)
	}
	return fmt.Sprintf("[%d %s] ", rank, g.Hosts[rank])
}

// handle handles an event.
func (r *runner) handle(e event) {
	s := &r.seats[e.rank]
	if e.start {
		s.pause = nil
		if r.stopping > 0 { // since the pause ended
			r.finish(e.rank, 0)
			return
		}
		r.start(e.rank)
		return
	}
	p := s.process
	s.process = nil
	ran := time.Duration(0)
	if p != nil {
		p.signal(syscall.SIGKILL) // no process of it may remain
		ran = time.Since(p.started)
	}
	if r.dies(e.rank, e.code, ran) {
		r.revive(e.rank, e.code, ran)
		return
	}
	if r.stopping > 0 && e.code == interrupted {
		e.code = 0 // a Ctrl-C before the program has installed its handler is no failure
	}
	r.finish(e.rank, e.code)
	if r.stopping > 0 {
		return
	}
	if e.rank > 0 && e.code == 0 {
		r.say("%s left the group; the other ranks continue", r.name(e.rank))
		return
	}
	r.say("%s exited with code %d", r.name(e.rank), e.code)
	// After an orderly exit of rank 0 the others exit by themselves; otherwise this stops
	// them.
	r.stop()
}

// finish notes the end of a rank that is not started again.
func (r *runner) finish(rank, code int) {
	s := &r.seats[rank]
	if !s.done {
		s.done, s.code = true, code
		r.left--
	}
}

// dies reports whether a rank that has ended is restarted. Rank 0 gives up with an error
// when it cannot continue, and any rank that fails at once would do so again.
func (r *runner) dies(rank, code int, ran time.Duration) bool {
	switch {
	case r.stopping > 0 || !r.Restart || code == 0:
		return false
	case code > bySignal || r.seats[rank].deaths > 0:
		return true
	}
	return rank > 0 && ran > failsAtOnce
}

// revive restarts a rank after a pause that grows while the rank keeps dying.
func (r *runner) revive(rank, code int, ran time.Duration) {
	s := &r.seats[rank]
	if ran >= r.Stable {
		s.deaths = 0
	}
	pause := min(time.Second<<min(s.deaths, 10), mostPause)
	s.deaths++
	r.say("%s exited with code %d; restarting it in %d s (time %d in a row)", r.name(rank), code, int(pause.Seconds()), s.deaths)
	s.pause = time.AfterFunc(pause, func() { r.events <- event{rank: rank, start: true} })
}

// stop ends the ranks: with Ctrl-C at first, as a user at their terminals would, then by
// SIGTERM, then by SIGKILL. Over ssh SIGTERM and SIGKILL only end the connection; the rank
// gets SIGHUP and ends in order.
func (r *runner) stop() {
	r.stopping++
	if r.stopping == 1 {
		r.say("stopping")
	}
	for rank := range r.seats {
		s := &r.seats[rank]
		if s.pause != nil && s.pause.Stop() {
			s.pause = nil
			r.finish(rank, 0)
		}
		switch p := s.process; {
		case p == nil:
		case r.stopping == 1:
			p.interrupt()
		case r.stopping == 2:
			p.signal(syscall.SIGTERM)
		default:
			p.signal(syscall.SIGKILL)
		}
		if r.stopping > 3 && !s.done { // not even SIGKILL ends it
			r.finish(rank, killed)
		}
	}
	wait := patience
	if r.matrix.text != nil {
		wait = rdmaPatience
	}
	if r.urge != nil {
		r.urge.Stop()
	}
	r.urge = time.NewTimer(wait)
}

// killAll leaves no process behind, whatever happened.
func (r *runner) killAll() {
	for rank := range r.seats {
		if p := r.seats[rank].process; p != nil {
			p.signal(syscall.SIGKILL)
		}
	}
}
