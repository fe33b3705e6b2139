package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
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
	c := &leaderConn{follower: f, conn: conn}
	c.send(message{Kind: kindHello, Hello: &hello})

	var wg sync.WaitGroup
	connected, stop := context.WithCancel(ctx)
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
		if ctx.Err() != nil {
			continue // this rank has said goodbye; what the leader had sent before is only taken off
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

// send sends a message. If that fails, the connection ends, which serve finds
// when it has handled what had arrived, perhaps a verdict.
func (c *leaderConn) send(m message) {
	if c.conn.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()}) != nil {
		c.conn.Finish(drainTimeout)
	}
}

// keepAlive sends heartbeats, and closes the connection when none arrives, until
// connected ends. If the whole rank ends, it says goodbye first.
func (c *leaderConn) keepAlive(connected, rank context.Context) {
	t := time.NewTicker(c.cfg.tick())
	defer t.Stop()
	clock := newClock(c.cfg.tick())
	var lastBeat, lastHeard time.Duration
	for {
		select {
		case <-connected.Done():
			if rank.Err() != nil {
				cause := context.Cause(rank)
				c.send(message{Kind: kindLeave, Reason: cause.Error(), All: errors.Is(cause, ErrStopAll)})
				c.conn.Finish(drainTimeout) // serve awaits that the leader hangs up
				return
			}
			c.conn.Close()
			return
		case <-t.C:
		}
		now := clock.now()
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
			c.cfg.Log.Warn("the epoch has ended", "epoch", m.Epoch, "cause", m.verdict())
			c.end(m.verdict())
		}
	case kindShutdown:
		return fmt.Errorf("%w: %s", errShutdown, m.Reason)
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
			return // the verdict is known already
		case err != nil:
			c.cfg.Log.Error("this rank failed", "epoch", epoch, "cause", err)
			answer = message{Kind: kindFailed, Reason: err.Error()}
			if peer, ok := peerOf(err); ok && r.Group != nil {
				answer.Kind, answer.Peer = kindSuspect, peer
			}
		case answer.Kind == 0:
			return
		}
		answer.Epoch = epoch
		c.send(answer)
	}
}

// connect joins the data plane of an epoch.
func (c *leaderConn) connect(r *run, m message) error {
	ctx, cancel := context.WithTimeout(r.Done, c.cfg.connectLimit())
	defer cancel()
	g, err := c.cfg.Transport.Connect(ctx, distributed.Link{
		Rank: c.cfg.Hello.Rank, Size: c.cfg.Hello.Size, GroupID: c.group, Epoch: m.Epoch, Token: m.Token, Addrs: inZone(m.Addrs, c.conn.LocalAddr()),
		OpTimeout: c.cfg.WorkTimeout, VerdictTimeout: c.cfg.PeerTimeout,
		Suspect: func(peer int, cause error) {
			c.send(message{Kind: kindSuspect, Epoch: m.Epoch, Peer: peer, Reason: cause.Error()})
		},
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Group = g
	if r.Done.Err() != nil { // end has not seen the group
		g.Fail(context.Cause(r.Done))
		return errors.Join(context.Cause(r.Done), g.Close())
	}
	return nil
}
