package cluster

import (
	"fmt"
	"time"

	"ringmaster/distributed/control"
)

// The leader's sources of events: connections and the clock.

// maxHandshakes is how many connections may be in their handshake at once;
// further ones wait in the kernel's queue.
const maxHandshakes = 32

// accept takes in connections until the listener is closed.
func (l *Leader) accept() {
	defer l.wg.Done()
	slots := make(chan struct{}, maxHandshakes)
	for {
		nc, err := l.listener.Accept()
		if err != nil {
			if l.ctx.Err() == nil {
				l.event(func() { l.sm.stop(fmt.Sprintf("accepting connections: %v", err), false) })
			}
			return
		}
		slots <- struct{}{}
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			c, err := control.Server(l.ctx, nc, l.cfg.control())
			<-slots
			if err != nil {
				nc.Close()
				l.cfg.Log.Warn("rejected a connection", "from", nc.RemoteAddr(), "cause", err)
				return
			}
			l.serve(c)
		}()
	}
}

// serve gives the messages of a connection to the state machine until it ends.
func (l *Leader) serve(c *control.Conn) {
	defer c.Close()
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.lastID++
	id := l.lastID
	l.conns[id] = c
	l.sm.connected(id, c.RemoteAddr().String())
	l.mu.Unlock()
	for {
		f, err := c.Receive()
		var msg message
		if err == nil {
			msg, err = decode(kind(f.Type), f.Payload)
		}
		if err != nil {
			l.event(func() { l.sm.closed(id, closeCause(err)) })
			return
		}
		l.event(func() { l.sm.receive(id, msg) })
	}
}

// runClock advances the state machine's time, sends heartbeats, and passes on
// the suspicions of this rank's group.
func (l *Leader) runClock() {
	defer l.wg.Done()
	t := time.NewTicker(l.cfg.tick())
	defer t.Stop()
	clock := newClock(l.cfg.tick())
	var lastBeat time.Duration
	for {
		select {
		case <-l.ctx.Done():
			return
		case s := <-l.suspicions:
			l.event(func() { l.sm.suspect(0, s.epoch, s.peer, s.cause) })
			continue
		case <-t.C:
		}
		l.event(func() {
			now := clock.now()
			l.sm.tick(now)
			if now-lastBeat >= l.cfg.heartbeat() {
				lastBeat = now
				l.sm.toAll(message{Kind: kindHeartbeat})
			}
		})
	}
}
