package cluster

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"ringmaster/distributed"
)

// clock is time as this process lives it: when the process was stopped or
// starved for a while, that while hardly counts, for what the others sent
// meanwhile has not been read yet and they must not be taken for silent.
type clock struct {
	most time.Duration // the most that counts at once
	last time.Time
	sum  time.Duration
}

func newClock(tick time.Duration) *clock { return &clock{most: 4 * tick, last: time.Now()} }

// now is the time that counts since the clock was made. The times between two
// calls are compared with most, so it is called every tick.
func (c *clock) now() time.Duration {
	t := time.Now()
	c.sum += min(t.Sub(c.last), c.most)
	c.last = t
	return c.sum
}

// closeCause says in a few words why a connection ended.
func closeCause(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection closed by the system (reset)"
	case errors.Is(err, syscall.ETIMEDOUT):
		return "no answer on the network"
	}
	return err.Error()
}

// peerOf is the rank that an operation of a group blames for its failure.
func peerOf(err error) (int, bool) {
	var op *distributed.OpError
	if errors.As(err, &op) && op.Peer >= 0 {
		return op.WorldPeer(), true
	}
	return -1, false
}
