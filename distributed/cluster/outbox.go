package cluster

import (
	"sync"
	"time"

	"ringmaster/distributed/control"
)

// mostQueued is how many bytes of payloads may wait for a follower that reads
// slowly, and mostFrames how many messages: far more than is under way in a
// group that works. A follower that is further behind is dropped.
const (
	mostQueued = 16 << 20
	mostFrames = 1024
)

// outbox sends the leader's messages on one connection, in their order, on a
// goroutine of its own: the leader must not wait for a follower that does not
// read while others wait for its heartbeats.
type outbox struct {
	conn *control.Conn

	mu     sync.Mutex
	more   sync.Cond // of mu: there is something to send, or close was called
	queue  []control.Frame
	bytes  int // of the queue's payloads
	closed bool
}

func newOutbox(c *control.Conn) *outbox {
	o := &outbox{conn: c}
	o.more.L = &o.mu
	return o
}

// send queues a message and does not block. If too much waits already, the
// connection is closed.
func (o *outbox) send(f control.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if len(o.queue) >= mostFrames || o.bytes+len(f.Payload) > mostQueued {
		o.closed, o.queue = true, nil
		o.conn.Close() // whoever receives from it tells the state machine
	} else {
		o.queue = append(o.queue, f)
		o.bytes += len(f.Payload)
	}
	o.more.Signal()
}

// finishDrain is how long the leader reads from a follower that it has hung up
// on. Less than the grace of a group that ends (cmd/server, half a second).
const finishDrain = 250 * time.Millisecond

// close ends sending when what is queued has been sent, or cannot be.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Signal()
}

// run sends until close was called or a message could not be sent. Then whoever
// receives from the connection sees it end soon and closes it: so the follower
// gets the last messages, and the leader its.
func (o *outbox) run() {
	defer o.conn.Finish(finishDrain)
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.more.Wait()
		}
		if len(o.queue) == 0 {
			o.mu.Unlock()
			return
		}
		f := o.queue[0]
		o.queue[0] = control.Frame{}
		o.queue = o.queue[1:]
		o.bytes -= len(f.Payload)
		o.mu.Unlock()
		if o.conn.Send(f) != nil {
			o.mu.Lock()
			o.closed, o.queue = true, nil
			o.mu.Unlock()
			return
		}
	}
}
