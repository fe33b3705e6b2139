package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// The leader performs the actions that its state machine asks for.

// event gives the state machine an event, f, and performs the actions that
// follow from it.
func (l *Leader) event(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// This comes before the event, because after a sleep the first events are
	// the ends of connections.
	if gap := l.clock.gap(); gap > l.cfg.PeerTimeout/2 {
		l.sm.slept(gap)
	}
	f()
	l.performAll()
}

// performAll performs the pending actions, and those that follow from them; mu
// is held.
func (l *Leader) performAll() {
	for actions := l.sm.take(); len(actions) > 0; actions = l.sm.take() {
		for _, a := range actions {
			l.perform(a)
		}
	}
}

func (l *Leader) perform(a action) {
	switch a := a.(type) {
	case send:
		if o := l.conns[a.conn]; o != nil {
			if a.m.Kind == kindPrepare && l.everywhere && len(a.m.Members) == 1 {
				a.m.Addrs = l.listenFor(o, a.m.Addrs)
			}
			o.send(control.Frame{Type: uint16(a.m.Kind), Payload: a.m.encode()})
		}
	case hangUp:
		if o := l.conns[a.conn]; o != nil {
			o.close()
			delete(l.conns, a.conn)
		}
	case askPlan:
		if !l.sm.plans(a.epoch) {
			return
		}
		l.forming.next(time.Now(), Placing)
		if l.everywhere {
			if err := l.listenForData(a.members); err != nil {
				l.sm.planFailed(a.epoch, err.Error())
				return
			}
		}
		settings, err := l.planner.Plan(a.members)
		if err != nil {
			l.sm.planFailed(a.epoch, err.Error())
			return
		}
		if l.reads = l.planner.Reads(); l.reads.Bytes > 0 {
			l.cfg.Log.Info("the plan gives ranks weights that are new to them: "+l.reads.String(), "epoch", l.sm.epoch)
		}
		var token [32]byte
		rand.Read(token[:]) // never fails
		l.sm.planned(a.epoch, settings, token[:])
	case askFit:
		why := ""
		if err := l.planner.Fits(a.members); err != nil {
			why = err.Error()
		}
		l.sm.fitAnswered(a.conn, a.rank, why)
	case askExamine:
		if l.cfg.Examine == nil {
			l.sm.notExamined(a.conn)
			return
		}
		l.wg.Go(func() {
			answer := l.cfg.Examine(l.ctx, a.request)
			l.event(func() { l.sm.examined(a.conn, answer) })
		})
	case load:
		l.forming.next(time.Now(), Mapping)
		done, cancel := context.WithCancelCause(l.ctx)
		r := &run{Epoch{Number: a.epoch, Members: a.ranks, Done: done}, cancel}
		l.run = r
		l.background(r, kindFormed, func() error { return l.planner.Form(done, a.settings) })
	case connect:
		l.forming.next(time.Now(), Connecting)
		r := l.run
		l.background(r, kindConnected, func() error { return l.connect(r, a) })
	case start:
		l.forming.next(time.Now(), Starting)
		r := l.run
		l.background(r, kindRun, func() error { return l.planner.Start(r.Epoch) })
	case endEpoch:
		l.reads = Reads{}
		l.forming.ended(time.Now(), a.noticing, a.verdict.Rank, a.ran)
		l.endRun(a.verdict)
	case begun, settled:
		l.broadcast()
		if b, ok := a.(begun); ok {
			line := []any{"epoch", b.epoch, "ranks", b.ranks, "size", l.sm.size(), "transport", l.run.Group.Kind()}
			if took, again := l.forming.runs(time.Now()); again {
				if l.cfg.Formed != nil {
					l.cfg.Formed(Formation{Epoch: b.epoch, Ranks: b.ranks, Lost: l.forming.lost, Began: l.forming.began, Parts: took})
				}
				for p, t := range took {
					line = append(line, Part(p).String(), t.Round(100*time.Microsecond))
				}
			}
			l.cfg.Log.Info("the group is running", line...)
			l.events.add(EventFormed, -1, fmt.Sprintf("epoch %d runs with %d of %d ranks over %s", b.epoch, b.ranks, l.sm.size(), l.run.Group.Kind()))
		}
	case report:
		if l.reports != nil {
			l.reports[a.rank] = append([]byte{}, a.payload...)
			l.broadcast()
		}
	case recruited:
		l.recruits = append(l.recruits, &recruit{l: l, conn: a.conn, rank: a.rank, host: l.sm.hostOf(a.rank), epoch: a.epoch})
		l.broadcast()
	case taken:
		for _, r := range l.recruits {
			if r.conn == a.conn && r.epoch == l.sm.epoch && r.inFlight > 0 {
				r.inFlight--
				if r.refusal == "" {
					r.refusal = a.reason
				}
			}
		}
		l.broadcast()
	case giveUp:
		l.end(errors.New(a.reason))
	case stopAll:
		l.cfg.Log.Info("the group has ended", "error", a.reason)
		l.end(nil)
	case note:
		if !a.stranger || l.logsStranger() {
			level := slog.LevelInfo
			if a.warning {
				level = slog.LevelWarn
			}
			l.cfg.Log.Log(l.ctx, level, a.text)
			l.events.add(a.kind, a.rank, a.text)
		}
	}
}

// background does this rank's part of forming an epoch without blocking
// events, and gives the state machine its answer; kindRun stands for started.
func (l *Leader) background(r *run, answer kind, do func() error) {
	l.wg.Go(func() {
		err := do()
		l.event(func() {
			switch {
			case err != nil && r.Done.Err() == nil:
				l.sm.failed(0, r.Number, err.Error(), missingOf(err))
			case err != nil:
			case answer == kindRun:
				l.sm.started(r.Number)
			default:
				l.sm.selfAnswered(r.Number, answer)
			}
		})
	})
}

// connect joins the data plane of an epoch.
func (l *Leader) connect(r *run, a connect) error {
	ctx, cancel := context.WithTimeout(r.Done, l.cfg.connectLimit())
	defer cancel()
	link := l.cfg.link(0, a.ranks, func(peer int, cause error) {
		// runClock forwards the suspicion, because the group must not block
		// here. If the channel is full, its suspicions say the same, so this
		// one can be dropped.
		select {
		case l.suspicions <- suspicion{peer: peer, cause: cause.Error(), epoch: a.epoch, desync: errors.Is(cause, distributed.ErrDesync)}:
		default:
		}
	})
	link.GroupID, link.Epoch, link.Token, link.Addrs, link.Hosts = l.sm.groupID, a.epoch, a.token, a.addrs, a.hosts
	g, err := l.cfg.Transport.Connect(ctx, link)
	if err != nil {
		return err
	}
	l.mu.Lock()
	ended := r.Done.Err() != nil
	if !ended {
		r.Group = g
	}
	l.mu.Unlock()
	if ended {
		return errors.Join(context.Cause(r.Done), g.Close())
	}
	return nil
}

// endRun fails the group of the epoch and closes it; mu is held.
func (l *Leader) endRun(verdict error) {
	r := l.run
	if r == nil {
		return
	}
	l.run = nil
	r.cancel(verdict)
	if g := r.Group; g != nil {
		g.Fail(verdict)
		l.wg.Go(func() {
			if err := g.Close(); err != nil {
				l.cfg.Log.Warn("cannot close the group", "epoch", r.Number, "error", err)
			}
		})
	}
	l.broadcast()
}

// end ends the leader for good; mu is held.
func (l *Leader) end(err error) {
	select {
	case <-l.done:
		return
	default:
	}
	l.err = err
	close(l.done)
	l.broadcast()
	l.listener.Close()
	for id, o := range l.conns {
		o.close()
		delete(l.conns, id)
	}
	l.cancel()
}

// broadcast wakes every caller that waits for a change; mu is held.
func (l *Leader) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}
