package cluster

import (
	"net"
	"time"

	"ringmaster/distributed/accept"
	"ringmaster/distributed/control"
)

// The leader's sources of events: connections and the clock.

// accept takes connections until the listener is closed. Strangers must not be
// able to end the group or to keep it from forming, so errors of accepting are
// survived, and connections of no rank are limited in number and make room for
// newer ones.
func (l *Leader) accept() {
	for {
		nc, err := accept.Next(l.listener, l.strangers.Evict, func(err error) {
			l.cfg.Log.Warn("cannot accept control connections for now; if open files have run out, raise ulimit -n", "error", err)
		})
		if err != nil {
			return
		}
		l.strangers.Add(nc)
		l.wg.Go(func() {
			c, err := control.Server(l.ctx, nc, l.cfg.control())
			if err != nil {
				if l.strangers.Remove(nc) { // not closed to make room
					l.rejected(nc.RemoteAddr(), err)
				}
				return
			}
			defer l.strangers.Remove(nc)
			l.serve(c, func() { l.strangers.Remove(nc) })
		})
	}
}

// rejected logs that a connection was closed in its handshake.
func (l *Leader) rejected(from net.Addr, cause error) {
	if l.logsStranger() {
		l.cfg.Log.Warn("rejected a connection", "peer", from, "error", cause)
	}
}

// logsStranger reports whether the log has room for a line that a stranger causes.
func (l *Leader) logsStranger() bool {
	ok, omitted := l.ration.take()
	if omitted > 0 {
		l.cfg.Log.Warn("rejected more connections than the log may show", "connections", omitted)
	}
	return ok
}

// serve gives the messages of a connection to the state machine until it ends. It
// calls joined when a rank joins over it.
func (l *Leader) serve(c *control.Conn, joined func()) {
	defer c.Close()
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.lastID++
	id := l.lastID
	o := newOutbox(c)
	l.conns[id] = o
	l.wg.Go(o.run)
	defer o.close()
	l.sm.connected(id, c.RemoteAddr().String())
	l.mu.Unlock()
	c.LimitReceive(mostHello)
	for member := false; ; {
		f, err := c.Receive()
		var msg message
		if err == nil {
			msg, err = decode(kind(f.Type), f.Payload)
		}
		if err != nil {
			l.event(func() { l.sm.closed(id, closeCause(err)) })
			return
		}
		l.event(func() {
			l.sm.receive(id, msg)
			if x := l.sm.conns[id]; !member && x != nil && (x.rank > 0 || x.drains > 0 || x.examines) {
				member = true
				joined()
				if x.rank > 0 {
					c.LimitReceive(control.MaxFrame)
				}
			}
		})
	}
}

// runClock advances the state machine's time, sends heartbeats, and passes on
// the suspicions of this rank's group.
func (l *Leader) runClock() {
	t := time.NewTicker(l.cfg.tick())
	defer t.Stop()
	var lastBeat time.Duration
	for {
		select {
		case <-l.ctx.Done():
			return
		case s := <-l.suspicions:
			l.event(func() { l.sm.suspect(0, s.epoch, s.peer, s.cause, s.desync) })
			continue
		case <-t.C:
		}
		l.event(func() {
			now := l.clock.now()
			l.sm.tick(now)
			if l.sm.phase != running {
				l.broadcast() // callers may wait for something that depends on the time alone
			}
			if now-lastBeat >= l.cfg.heartbeat() {
				lastBeat = now
				l.sm.toAll(message{Kind: kindHeartbeat})
			}
		})
	}
}
