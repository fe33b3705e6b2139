package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed/control"
)

// Examine: a person has the leader examine the group, request by request. The connection
// is one like that of Drain: whoever has the cluster's key may make requests, and nobody
// else where there is one. One person examines at a time.

// Examiner is the connection of somebody who examines a group. One goroutine uses it.
type Examiner struct {
	addr string
	conn *control.Conn
	stop context.CancelFunc
}

// RefusedError is why the leader does not examine.
type RefusedError struct{ Reason string }

// Error is the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Examine connects to the leader at cfg.Coordinator. Of cfg it uses the coordinator, the
// key and the timeouts. The caller closes the Examiner; it ends with ctx, too.
func Examine(ctx context.Context, cfg Config) (*Examiner, error) {
	cfg = cfg.withDefaults()
	conn, err := control.Dial(ctx, cfg.Coordinator, cfg.control())
	if err != nil {
		return nil, fmt.Errorf("no leader at %s: %w; check that rank 0 is running with --coordinator %s", cfg.Coordinator, err, cfg.Coordinator)
	}
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		t := time.NewTicker(cfg.heartbeat())
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if conn.Send(control.Frame{Type: uint16(kindHeartbeat)}) != nil {
					return // Ask finds it
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return &Examiner{cfg.Coordinator, conn, stop}, nil
}

// Close ends the connection.
func (x *Examiner) Close() { x.stop() }

// mostExamining is how many requests are answered at once at most: one, and those of
// connections that have ended before the answer.
const mostExamining = 4

// mostRequest is the most bytes of a request.
const mostRequest = mostHello - 64

// Ask makes a request and returns the answer of Config.Examine. If ctx ends before, the
// connection is closed. The error is a RefusedError if the leader refuses.
func (x *Examiner) Ask(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) > mostRequest {
		return nil, fmt.Errorf("cluster: a request of %d bytes; at most %d are possible", len(request), mostRequest)
	}
	defer context.AfterFunc(ctx, func() { x.conn.Close() })()
	m := message{Kind: kindExamine, Payload: request}
	err := x.conn.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()})
	for err == nil {
		var f control.Frame
		if f, err = x.conn.Receive(); err != nil {
			break
		}
		if m, err = decode(kind(f.Type), f.Payload); err != nil {
			break
		}
		switch m.Kind {
		case kindExamined:
			return bytes.Clone(m.Payload), nil
		case kindReject:
			return nil, &RefusedError{m.Reason}
		case kindShutdown:
			return nil, fmt.Errorf("the group has ended: %s", m.Reason)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("the leader at %s: %s", x.addr, closeCause(err))
}

// examine handles a request.
func (m *stateMachine) examine(id int, request []byte) {
	c := m.conns[id]
	for other, x := range m.conns {
		if other != id && x.examines {
			m.reject(id, fmt.Sprintf("somebody at %s examines the group; try again later", x.addr), false)
			return
		}
	}
	if c.busy {
		m.reject(id, "the request before has not been answered", false)
		return
	}
	if !c.examines {
		m.noteStranger("%s examines the group", c.addr)
	}
	if m.examining == mostExamining {
		m.reject(id, fmt.Sprintf("%d requests of connections that have ended are still being answered; try again later", m.examining), false)
		return
	}
	c.examines, c.busy = true, true
	m.examining++
	m.do(askExamine{id, bytes.Clone(request)}) // the next message overwrites its memory
}

// examined answers askExamine. An answer that fits no frame is refused.
func (m *stateMachine) examined(id int, answer []byte) {
	m.examining--
	c := m.conns[id]
	if c == nil {
		return // it has gone
	}
	c.busy = false
	if len(answer) > control.MaxFrame {
		m.reject(id, fmt.Sprintf("the answer has %d bytes, more than a message", len(answer)), false)
		return
	}
	m.do(send{id, fmt.Sprintf("connection %d", id), message{Kind: kindExamined, Payload: answer}})
}

// notExamined answers askExamine if the leader examines nothing.
func (m *stateMachine) notExamined(id int) {
	m.examining--
	m.reject(id, errNothingExamined.Error(), false)
}

var errNothingExamined = errors.New("this leader examines nothing: its command is not serve")
