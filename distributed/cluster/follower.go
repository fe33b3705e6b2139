package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// The waits between two attempts to reach the leader.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// lastWait is how long Follow waits at its end for work under way, which ends at
// the next layer.
const lastWait = 500 * time.Millisecond

// follower is a rank that follows.
type follower struct {
	cfg    Config
	worker Worker
	tasks  chan func() // done in order by one goroutine

	mu  sync.Mutex
	run *run // the epoch that forms or runs, nil between epochs
}

// errShutdown: the leader has ended the group.
var errShutdown = errors.New("the leader ended the group")

// rejected is the leader's no.
type rejected struct {
	reason string
	retry  bool
}

func (r *rejected) Error() string { return r.reason }

// Follow joins the group of the leader at cfg.Coordinator and does its work
// until the leader ends the group (nil), ctx ends, the leader turns this rank
// away, or none is found for ConnectTimeout. When the connection is lost it
// looks for the leader again. A long piece of work may outlive Follow by the time
// it takes to notice the end.
func Follow(ctx context.Context, cfg Config, w Worker) error {
	cfg = cfg.withDefaults()
	cfg.Hello.Process = rand.Text()
	f := &follower{cfg: cfg, worker: w, tasks: make(chan func(), 64)}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for task := range f.tasks {
			task()
		}
	}()
	defer func() {
		close(f.tasks)
		select {
		case <-idle:
		case <-time.After(lastWait):
			cfg.Log.Warn("work still runs, and is left behind")
		}
		cfg.Transport.Close()
	}()

	contact := time.Now() // when the leader was last heard
	pause := firstPause
	for {
		joined, err := f.session(ctx)
		if joined {
			contact, pause = time.Now(), firstPause
		}
		var no *rejected
		var refused *control.RefusedError
		switch {
		case errors.Is(err, errShutdown):
			cfg.Log.Info("the group ends", "reason", err)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &no) && !no.retry, errors.As(err, &refused):
			return fmt.Errorf("rank %d: the leader at %s turned this rank away: %w", cfg.Hello.Rank, cfg.Coordinator, err)
		case time.Since(contact) > cfg.ConnectTimeout:
			return fmt.Errorf("rank %d: no leader at %s for %v: %w; check that rank 0 runs with --coordinator %s and that no firewall is in between",
				cfg.Hello.Rank, cfg.Coordinator, cfg.ConnectTimeout, err, cfg.Coordinator)
		}
		if joined || pause == longPause {
			cfg.Log.Warn("looking for the leader", "address", cfg.Coordinator, "cause", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		pause = min(2*pause, longPause)
	}
}

// session is one connection to the leader, from dialling to its loss; joined
// tells whether the leader took this rank in.
func (f *follower) session(ctx context.Context) (joined bool, err error) {
	dialling, cancel := context.WithTimeout(ctx, f.cfg.PeerTimeout)
	conn, err := control.Dial(dialling, f.cfg.Coordinator, f.cfg.control())
	cancel()
	if err != nil {
		return false, err
	}
	hello := f.cfg.Hello
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err == nil {
		hello.Data, err = f.cfg.Transport.Listen(host)
	}
	if err != nil {
		conn.Close()
		return false, fmt.Errorf("data plane at %s: %w", host, err)
	}
	s := &session{follower: f, conn: conn}
	s.send(message{Kind: kindHello, Hello: &hello})

	var wg sync.WaitGroup
	alive, stop := context.WithCancel(ctx)
	wg.Go(func() { s.keepTime(alive, ctx) })
	defer wg.Wait()
	defer stop()
	defer func() {
		s.end(&distributed.PeerError{Rank: 0, Addr: f.cfg.Coordinator, Cause: err.Error()})
		conn.Close()
	}()
	for {
		fr, err := conn.Receive()
		if err != nil {
			switch why := s.silent.Load(); {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case why != nil:
				err = errors.New(*why)
			default:
				err = errors.New(closeCause(err))
			}
			return s.joined, err
		}
		s.heard.Store(true)
		m, err := decode(kind(fr.Type), fr.Payload)
		if err == nil {
			err = s.handle(m)
		}
		if err != nil {
			return s.joined, err
		}
	}
}

// session is a connection to the leader.
type session struct {
	*follower
	conn   *control.Conn
	joined bool
	group  string
	heard  atomic.Bool            // since the last look
	silent atomic.Pointer[string] // why the connection was given up
}

// send sends a message; if that fails the reader finds the connection closed.
func (s *session) send(m message) {
	if s.conn.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()}) != nil {
		s.conn.Close()
	}
}

// handle does what a message asks for; an error ends the session.
func (s *session) handle(m message) error {
	if !s.joined {
		switch m.Kind {
		case kindWelcome:
			s.joined, s.group = true, m.Group
			s.cfg.Log.Info("joined the group", "leader", s.cfg.Coordinator, "rank", s.cfg.Hello.Rank, "ranks", s.cfg.Hello.Size)
			return nil
		case kindReject:
			return &rejected{m.Reason, m.Retry}
		case kindShutdown:
			return fmt.Errorf("%w: %s", errShutdown, m.Reason)
		case kindHeartbeat:
			return nil
		}
		return fmt.Errorf("the leader's first message is %v", m.Kind)
	}
	switch m.Kind {
	case kindHeartbeat:
	case kindForm:
		s.form(m)
	case kindConnect:
		s.task(m.Epoch, func(r *run) (message, error) {
			return message{Kind: kindConnected}, s.connect(r, m)
		})
	case kindRun:
		s.task(m.Epoch, func(r *run) (message, error) {
			s.cfg.Log.Info("the group runs", "epoch", m.Epoch, "transport", r.Group.Kind())
			return message{}, s.worker.Start(r.Epoch)
		})
	case kindWork:
		payload := append([]byte(nil), m.Payload...) // m is read over by the next message
		s.task(m.Epoch, func(*run) (message, error) {
			d, err := s.worker.Work(payload)
			return message{Kind: kindDone, Number: m.Number, Digest: d}, err
		})
	case kindVerdict:
		if r := s.current(m.Epoch); r != nil {
			s.cfg.Log.Warn("the epoch has ended", "epoch", m.Epoch, "cause", m.verdict())
			s.end(m.verdict())
		}
	case kindShutdown:
		return fmt.Errorf("%w: %s", errShutdown, m.Reason)
	case kindReportPlease:
		s.send(message{Kind: kindReport, Payload: s.worker.Report()})
	default:
		return fmt.Errorf("the leader sent %v, which only followers send", m.Kind)
	}
	return nil
}

// current is the run of an epoch, nil if it has ended.
func (f *follower) current(epoch uint32) *run {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil || f.run.Number != epoch {
		return nil
	}
	return f.run
}

// form begins an epoch on this rank.
func (s *session) form(m message) {
	s.end(&distributed.PeerError{Rank: -1, Cause: "the next epoch has begun"})
	done, cancel := context.WithCancelCause(context.Background())
	r := &run{Epoch{Number: m.Epoch, Rank: s.cfg.Hello.Rank, Done: done}, cancel}
	s.mu.Lock()
	s.run = r
	s.mu.Unlock()
	settings := append([]byte(nil), m.Settings...)
	s.task(m.Epoch, func(r *run) (message, error) {
		return message{Kind: kindFormed}, s.worker.Form(r.Done, settings)
	})
}

// task has the worker's goroutine do something for an epoch, unless that has
// ended, and sends the answer.
func (s *session) task(epoch uint32, do func(*run) (message, error)) {
	r := s.current(epoch)
	if r == nil {
		return
	}
	s.tasks <- func() {
		if r.Done.Err() != nil {
			return
		}
		answer, err := do(r)
		switch {
		case r.Done.Err() != nil:
			return // the verdict is known already
		case err != nil:
			s.cfg.Log.Error("this rank failed", "epoch", epoch, "cause", err)
			answer = message{Kind: kindFailed, Reason: err.Error()}
			if peer, ok := peerOf(err); ok && r.Group != nil {
				answer.Kind, answer.Peer = kindSuspect, peer
			}
		case answer.Kind == 0:
			return
		}
		answer.Epoch = epoch
		s.send(answer)
	}
}

// connect makes the group of an epoch.
func (s *session) connect(r *run, m message) error {
	ctx, cancel := context.WithTimeout(r.Done, s.cfg.connectLimit())
	defer cancel()
	g, err := s.cfg.Transport.Connect(ctx, distributed.Link{
		Rank: s.cfg.Hello.Rank, Size: s.cfg.Hello.Size, GroupID: s.group, Epoch: m.Epoch, Token: m.Token, Addrs: m.Addrs,
		OpTimeout: s.cfg.WorkTimeout, VerdictTimeout: s.cfg.PeerTimeout,
		Suspect: func(peer int, cause error) {
			s.send(message{Kind: kindSuspect, Epoch: m.Epoch, Peer: peer, Reason: cause.Error()})
		},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Group = g
	if r.Done.Err() != nil { // end has not seen the group
		g.Fail(context.Cause(r.Done))
		return errors.Join(context.Cause(r.Done), g.Close())
	}
	return nil
}

// end ends the epoch, if there is one, with a verdict.
func (f *follower) end(verdict error) {
	f.mu.Lock()
	r := f.run
	f.run = nil
	var g distributed.Group
	if r != nil {
		r.cancel(verdict)
		g = r.Group
	}
	f.mu.Unlock()
	if g == nil {
		return
	}
	g.Fail(verdict)
	f.tasks <- func() { // after the work that still uses it
		if err := g.Close(); err != nil {
			f.cfg.Log.Warn("closing the group", "epoch", r.Number, "error", err)
		}
	}
}

// keepTime sends signs of life and gives the connection up when none comes,
// until alive ends. When the end is that of the whole rank, it says goodbye.
func (s *session) keepTime(alive, rank context.Context) {
	t := time.NewTicker(s.cfg.tick())
	defer t.Stop()
	clock := newClock(s.cfg.tick())
	var beat, heard time.Duration
	for {
		select {
		case <-alive.Done():
			if rank.Err() != nil {
				cause := context.Cause(rank)
				s.send(message{Kind: kindLeave, Reason: cause.Error(), All: errors.Is(cause, ErrStopAll)})
			}
			s.conn.Close()
			return
		case <-t.C:
		}
		now := clock.now()
		if s.heard.Swap(false) {
			heard = now
		}
		if quiet := now - heard; quiet > s.cfg.PeerTimeout {
			why := fmt.Sprintf("no heartbeat for %v", quiet.Round(100*time.Millisecond))
			s.silent.Store(&why)
			s.conn.Close()
			return
		}
		if now-beat >= s.cfg.heartbeat() {
			beat = now
			s.send(message{Kind: kindHeartbeat})
		}
	}
}
