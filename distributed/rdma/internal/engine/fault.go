package engine

import (
	"fmt"
	"syscall"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// The kinds of struct rme_fail.
const (
	failCompletion = 1
	failPoll       = 2
	failPostSend   = 3
	failPostRecv   = 4
	failHeader     = 5
	failStale      = 6
	failLength     = 7
	failLost       = 8
)

// fault is struct rme_fail: what broke a task.
type fault struct {
	kind     int
	conn     *Conn
	errno    int
	got      int // result of a poll, or number of the message received
	want     uint32
	wc       verbs.WC
	header   header // of the peer
	expected header
}

// scanLimit bounds the search for the cause of a flush.
const scanLimit = 10 * time.Millisecond

// Fault says what broke a task, and with which peer. op and number name the
// operation. If a request was flushed, it searches the other connections,
// because one of them may have the cause.
func (e *Engine) Fault(t *Task, op string, number uint64) (peer int, err error) {
	f := t.fault()
	if f.kind == failCompletion && f.wc.Status == verbs.StatusFlush {
		if cause, ok := scan(e.cfg.Conns, scanLimit); ok {
			f = cause
		}
	}
	return f.conn.Peer, e.faultError(&f, op, number)
}

func (e *Engine) faultError(f *fault, op string, number uint64) error {
	c := f.conn
	where := fmt.Sprintf("rail %d (%s)", c.Rail, c.Device)
	if f.kind == failPoll || f.kind == failPostSend || f.kind == failPostRecv {
		if why := c.CQ.Fault(); why != nil {
			return fmt.Errorf("%s: %w", where, why)
		}
	}
	switch f.kind {
	case failCompletion:
		err := verbs.NewCompletionError(f.wc)
		err.Op, err.Seq, err.Rank, err.Peer, err.Rail, err.Device = op, number, e.cfg.Rank, c.Peer, c.Rail, c.Device
		switch f.wc.Status {
		case verbs.StatusRetryExc, verbs.StatusFlush:
			return fmt.Errorf("%w: %w", distributed.ErrPeerGone, err)
		case verbs.StatusRemInv: // the peer has posted for a message of another operation
			return fmt.Errorf("%w: %w", distributed.ErrDesync, err)
		}
		return err
	case failPoll:
		return fmt.Errorf("%s: %w", where, &verbs.PollError{Device: c.Device, Result: f.got, Asked: 16})
	case failPostSend, failPostRecv:
		call := "post_send"
		if f.kind == failPostRecv {
			call = "post_recv"
		}
		return fmt.Errorf("%s: %w", where, &verbs.PostError{Call: call, Device: c.Device, QPN: c.QP.Num(), Asked: 1, Errno: syscall.Errno(f.errno)})
	case failHeader:
		return fmt.Errorf("%w: rank %d runs %v, rank %d runs %v", distributed.ErrDesync, c.Peer, f.header, e.cfg.Rank, f.expected)
	case failStale:
		return fmt.Errorf("%w: %s: no request is waiting for a completion (wr_id %#x), so it belongs to another operation or arrived twice", distributed.ErrDesync, where, f.wc.ID)
	case failLost:
		return fmt.Errorf("%w: %s: received message %d and expected message %d: a message of rank %d was lost", distributed.ErrDesync, where, f.got, f.want, c.Peer)
	case failLength:
		return fmt.Errorf("%w: %s: received a message of %d bytes; expected %d", distributed.ErrDesync, where, f.wc.ByteLen, f.want)
	}
	return fmt.Errorf("%w: %s: fault %d", distributed.ErrDesync, where, f.kind)
}
