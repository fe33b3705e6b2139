package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
	"ringmaster/internal/network"
)

// leaderConn is one connection of a follower to the leader.
type leaderConn struct {
	*follower
	conn   *control.Conn
	joined bool
	group  string                 // id from the leader's welcome
	heard  atomic.Bool            // something has arrived since keepAlive last looked
	silent atomic.Pointer[string] // why keepAlive closed the connection
}

// serve connects to the leader and serves the connection until it is lost;
// joined tells whether the leader admitted this rank.
func (f *follower) serve(ctx context.Context) (joined bool, err error) {
	conn, err := control.Dial(ctx, f.cfg.Coordinator, f.cfg.control())
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
	c := &leaderConn{follower: f, conn: conn}
	c.send(message{Kind: kindHello, Hello: &hello})

	var wg sync.WaitGroup
	connected, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { c.keepAlive(connected, ctx) })
	defer wg.Wait()
	defer stop()
	defer func() {
		c.end(&distributed.PeerError{Rank: 0, Addr: f.cfg.Coordinator, Cause: err.Error()})
		conn.Close()
	}()
	for {
		fr, err := conn.Receive()
		if err != nil {
			switch why := c.silent.Load(); {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case why != nil:
				err = errors.New(*why)
			default:
				err = errors.New(closeCause(err))
			}
			return c.joined, err
		}
		c.heard.Store(true)
		if errors.Is(context.Cause(ctx), ErrStopAll) {
			continue // this rank said goodbye; what the leader sent before that is read and dropped
		}
		m, err := decode(kind(fr.Type), fr.Payload)
		if err == nil {
			err = c.handle(m)
		}
		if err != nil {
			return c.joined, err
		}
	}
}

// send sends a message. If that fails, the connection ends. serve notices that only after it
// has handled what had already arrived, because that may be a verdict.
func (c *leaderConn) send(m message) {
	if c.conn.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()}) != nil {
		c.conn.Finish(exitTimeout)
	}
}

// keepAlive sends heartbeats, and closes the connection when none arrives, until connected
// ends. If the whole rank ends, it first says goodbye. Then it keeps working until the
// leader hangs up, because the leader may have to form an epoch without it first.
func (c *leaderConn) keepAlive(connected, rank context.Context) {
	t := time.NewTicker(c.cfg.tick())
	defer t.Stop()
	clock := newClock(c.cfg.tick())
	var lastBeat, lastHeard, leaveBy time.Duration
	ends := rank.Done()
	for {
		select {
		case <-connected.Done():
			c.conn.Close()
			return
		case <-ends:
			ends = nil
			cause := context.Cause(rank)
			all := errors.Is(cause, ErrStopAll)
			c.send(message{Kind: kindLeave, Reason: cause.Error(), All: all})
			if all || !c.inEpoch() {
				c.conn.Finish(exitTimeout) // serve awaits that the leader hangs up
				return
			}
			leaveBy = clock.now() + c.cfg.DrainTimeout
			continue
		case <-t.C:
		}
		now := clock.now()
		if leaveBy > 0 && now > leaveBy {
			c.cfg.Log.Warn("left in the middle of an epoch: the leader did not form one without this rank in time", "limit", c.cfg.DrainTimeout)
			c.conn.Finish(exitTimeout)
			return
		}
		if c.heard.Swap(false) {
			lastHeard = now
		}
		if quiet := now - lastHeard; quiet > c.cfg.PeerTimeout {
			why := fmt.Sprintf("no heartbeat for %v", quiet.Round(100*time.Millisecond))
			c.silent.Store(&why)
			c.conn.Close()
			return
		}
		if now-lastBeat >= c.cfg.heartbeat() {
			lastBeat = now
			c.send(message{Kind: kindHeartbeat})
		}
	}
}

// handle does what a message asks for; an error ends the connection.
func (c *leaderConn) handle(m message) error {
	if !c.joined {
		return c.admission(m)
	}
	switch m.Kind {
	case kindHeartbeat:
	case kindPrepare:
		c.prepare(m)
	case kindAhead:
		c.ahead(m)
	case kindForm:
		c.form(m)
	case kindConnect:
		c.task(m.Epoch, func(r *run) (message, error) {
			return message{Kind: kindConnected}, c.connect(r, m)
		})
	case kindRun:
		c.task(m.Epoch, func(r *run) (message, error) {
			c.cfg.Log.Info("the group is running", "epoch", m.Epoch, "transport", r.Group.Kind())
			return message{}, c.worker.Start(r.Epoch)
		})
	case kindWork:
		payload := append([]byte(nil), m.Payload...) // the next message overwrites m's memory
		c.task(m.Epoch, func(*run) (message, error) {
			d, err := c.worker.Work(payload)
			return message{Kind: kindDone, Number: m.Number, Digest: d}, err
		})
	case kindVerdict:
		if r := c.current(m.Epoch); r != nil {
			c.cfg.Log.Warn("the epoch has ended", "epoch", m.Epoch, "error", m.verdict())
			c.end(m.verdict())
		}
	case kindShutdown:
		return fmt.Errorf("%w: %s", errShutdown, m.Reason)
	case kindDrained:
		return fmt.Errorf("%w: %s", errDrained, m.Reason)
	case kindReportRequest:
		c.send(message{Kind: kindReport, Payload: c.worker.Report()})
	default:
		return fmt.Errorf("the leader sent %v, which only followers send", m.Kind)
	}
	return nil
}

// admission handles the leader's answer to hello.
func (c *leaderConn) admission(m message) error {
	switch m.Kind {
	case kindWelcome:
		c.joined, c.group = true, m.Group
		c.cfg.Log.Info("joined the group", "leader", c.cfg.Coordinator, "rank", c.cfg.Hello.Rank, "ranks", c.cfg.Hello.Size)
		return nil
	case kindReject:
		return &rejectedError{m.Reason, m.Retry}
	case kindShutdown:
		return fmt.Errorf("%w: %s", errShutdown, m.Reason)
	case kindHeartbeat:
		return nil
	}
	return fmt.Errorf("expected welcome or reject from the leader, got %v", m.Kind)
}

// form begins an epoch on this rank.
func (c *leaderConn) form(m message) {
	c.end(&distributed.PeerError{Rank: -1, Cause: "the next epoch has begun"})
	done, cancel := context.WithCancelCause(context.Background())
	r := &run{Epoch{Number: m.Epoch, Rank: c.cfg.Hello.Rank, Done: done}, cancel}
	c.mu.Lock()
	c.run = r
	c.mu.Unlock()
	settings := append([]byte(nil), m.Settings...)
	c.task(m.Epoch, func(r *run) (message, error) {
		if slices.Contains(m.Members, c.cfg.Hello.Rank) {
			if err := c.reach(r.Done, m); err != nil {
				return message{}, err
			}
		}
		return message{Kind: kindFormed}, c.worker.Form(r.Done, settings)
	})
}

// task queues something for the worker's goroutine to do in an epoch, unless
// that has ended, and sends the answer; an answer of kind 0 is not sent.
func (c *leaderConn) task(epoch uint32, do func(*run) (message, error)) {
	r := c.current(epoch)
	if r == nil {
		return
	}
	c.tasks <- func() {
		if r.Done.Err() != nil {
			return
		}
		answer, err := do(r)
		switch {
		case r.Done.Err() != nil:
			return // the leader has already sent the verdict
		case err != nil:
			c.cfg.Log.Error("this rank failed", "epoch", epoch, "error", err)
			answer = message{Kind: kindFailed, Reason: err.Error(), Missing: c.missing(err)}
			if peer, ok := peerOf(err); ok && r.Group != nil {
				answer.Kind, answer.Peer, answer.Desync = kindSuspect, peer, errors.Is(err, distributed.ErrDesync)
			}
		case answer.Kind == 0:
			return
		}
		answer.Epoch = epoch
		c.send(answer)
	}
}

// missing returns the ranks that this rank could not connect to. It adds whether an address
// translation hides the leader's data plane, because only a follower, which dialled both
// addresses, can see that.
func (c *leaderConn) missing(err error) []distributed.Unconnected {
	all := slices.Clone(missingOf(err))
	for i := range all {
		if u := &all[i]; u.Rank == 0 && u.Dialled {
			u.Cause += translation(u.Addr, c.conn.RemoteAddr().String())
		}
	}
	return all
}

// checkMembers verifies the ranks of a message that this rank is to connect to (self is set,
// and it is one of them) or to reach.
func (c *leaderConn) checkMembers(m message, self bool) error {
	ok := len(m.Members) == len(m.Addrs) && (len(m.Hosts) == 0 || len(m.Hosts) == len(m.Members)) && (!self || slices.Contains(m.Members, c.cfg.Hello.Rank))
	for i, r := range m.Members {
		ok = ok && r >= 0 && r < c.cfg.Hello.Size && (i == 0 || r > m.Members[i-1])
	}
	if !ok {
		return fmt.Errorf("the leader sent members %v with %d addresses to rank %d of %d", m.Members, len(m.Addrs), c.cfg.Hello.Rank, c.cfg.Hello.Size)
	}
	return nil
}

// reachLimit is how long another rank may take to accept a connection. It is more than a
// second, because a lost first packet is sent again after one.
const reachLimit = 3 * time.Second

// reach checks that this rank reaches the data planes of the ranks of a message, as far as
// the transport can tell. Otherwise a group would wait for a connection that cannot be made.
func (c *leaderConn) reach(ctx context.Context, m message) error {
	if err := c.checkMembers(m, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	failed := make([]error, len(m.Members))
	var all sync.WaitGroup
	for i, addr := range inZone(m.Addrs, c.conn.LocalAddr()) {
		rank := m.Members[i]
		if rank == c.cfg.Hello.Rank {
			continue
		}
		all.Go(func() {
			if err := c.cfg.Transport.Probe(ctx, addr); err != nil {
				name := distributed.RankName(rank, m.host(i))
				failed[i] = fmt.Errorf("%s does not reach %s at %s: %w%s", c.cfg.Hello.Name(), name, addr, err, network.Target{Addr: addr, Who: name}.Cure(err))
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// prepare loads the model for an epoch that this rank may join later.
func (c *leaderConn) prepare(m message) {
	settings := append([]byte(nil), m.Settings...)
	c.tasks <- func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.FormTimeout)
		defer cancel()
		answer := message{Kind: kindPrepared, Epoch: m.Epoch}
		err := c.worker.Form(ctx, settings)
		if err == nil {
			err = c.reach(ctx, m)
		}
		if err != nil {
			c.cfg.Log.Error("this rank cannot join the epoch", "epoch", m.Epoch, "error", err)
			answer.Reason = err.Error()
		}
		c.send(answer)
	}
}

// ahead passes the worker what the leader sends while this rank waits to join.
func (c *leaderConn) ahead(m message) {
	payload := append([]byte(nil), m.Payload...) // the next message overwrites m's memory
	c.tasks <- func() {
		err := errors.New("this program accepts nothing before it joins")
		if j, ok := c.worker.(Joiner); ok {
			err = j.Ahead(payload)
		}
		answer := message{Kind: kindTaken, Epoch: m.Epoch}
		if err != nil {
			c.cfg.Log.Error("this rank refused what the leader sent ahead of joining", "epoch", m.Epoch, "error", err)
			answer.Reason = err.Error()
		}
		c.send(answer)
	}
}

// connect joins the data plane of an epoch.
func (c *leaderConn) connect(r *run, m message) error {
	ctx, cancel := context.WithTimeout(r.Done, c.cfg.connectLimit())
	defer cancel()
	if err := c.checkMembers(m, true); err != nil {
		return err
	}
	link := c.cfg.link(c.cfg.Hello.Rank, m.Members, func(peer int, cause error) {
		c.send(message{Kind: kindSuspect, Epoch: m.Epoch, Peer: peer, Reason: cause.Error(), Desync: errors.Is(cause, distributed.ErrDesync)})
	})
	link.GroupID, link.Epoch, link.Token, link.Addrs = c.group, m.Epoch, m.Token, inZone(m.Addrs, c.conn.LocalAddr())
	link.Hosts = m.Hosts
	g, err := c.cfg.Transport.Connect(ctx, link)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Group, r.Members = g, m.Members
	if r.Done.Err() != nil { // end has not seen the group
		g.Fail(context.Cause(r.Done))
		return errors.Join(context.Cause(r.Done), g.Close())
	}
	return nil
}
