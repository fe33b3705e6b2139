package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed/control"
)

// Examine: a person asks the leader to examine the group, one request at a time. The
// connection is like that of Drain: in a cluster with a key only its holders can make
// requests. One person examines at a time.

// Examiner is a connection that examines a group. One goroutine uses it.
type Examiner struct {
	addr string
	conn *control.Conn
	stop context.CancelFunc
}

// RefusedError says why the leader refused to examine the group.
type RefusedError struct{ Reason string }

// Error is the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Examine connects to the leader at cfg.Coordinator. It uses only the coordinator, the
// key and the timeouts of cfg. The caller closes the Examiner; the end of ctx closes it,
// too.
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

// mostExamining bounds the requests being answered: the current one, and those whose
// connections ended before the answer.
const mostExamining = 4

// mostRequest is the most bytes of a request.
const mostRequest = mostHello - 64

// Ask makes a request and returns the answer of Config.Examine. If ctx ends first, the
// connection is closed. The error is a RefusedError if the leader refuses.
func (x *Examiner) Ask(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) > mostRequest {
		return nil, fmt.Errorf("a request of %d bytes; at most %d are possible", len(request), mostRequest)
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
			m.reject(id, fmt.Sprintf("%s is already examining the group; try again later", x.addr), false)
			return
		}
	}
	if c.busy {
		m.reject(id, "the previous request is still being answered", false)
		return
	}
	if !c.examines {
		m.noteStranger("%s is examining the group", c.addr)
	}
	if m.examining == mostExamining {
		m.reject(id, fmt.Sprintf("%d requests of closed connections are still being answered; try again later", m.examining), false)
		return
	}
	c.examines, c.busy = true, true
	m.examining++
	m.do(askExamine{id, bytes.Clone(request)}) // the next message overwrites its memory
}

// examined answers askExamine. An answer too large for a frame is refused.
func (m *stateMachine) examined(id int, answer []byte) {
	m.examining--
	c := m.conns[id]
	if c == nil {
		return // the connection has closed
	}
	c.busy = false
	if len(answer) > control.MaxFrame {
		m.reject(id, fmt.Sprintf("the answer has %d bytes, more than a message can hold", len(answer)), false)
		return
	}
	m.do(send{id, fmt.Sprintf("connection %d", id), message{Kind: kindExamined, Payload: answer}})
}

// notExamined refuses a request because the leader has no Config.Examine.
func (m *stateMachine) notExamined(id int) {
	m.examining--
	m.reject(id, errNothingExamined.Error(), false)
}

var errNothingExamined = errors.New("this leader cannot examine its group, because it does not run the command serve")
