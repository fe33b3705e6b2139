package cluster

import (
	"sync"
	"time"

	"ringmaster/distributed/control"
)

// mostQueued bounds the bytes of payloads that wait for a follower that reads
// slowly, and mostFrames the messages. Both are far more than a working group
// has in flight, so a follower that is further behind is dropped.
const (
	mostQueued = 16 << 20
	mostFrames = 1024
)

// outbox sends the leader's messages on one connection in order. It has its own
// goroutine, because the leader must not wait for a follower that does not read
// while others wait for its heartbeats.
type outbox struct {
	conn *control.Conn

	mu     sync.Mutex
	more   sync.Cond // of mu; signalled when a message is queued or close was called
	queue  []control.Frame
	bytes  int // of the queue's payloads
	closed bool
}

func newOutbox(c *control.Conn) *outbox {
	o := &outbox{conn: c}
	o.more.L = &o.mu
	return o
}

// send queues a message and does not block. If too much is already queued, it
// closes the connection.
func (o *outbox) send(f control.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if len(o.queue) >= mostFrames || o.bytes+len(f.Payload) > mostQueued {
		o.closed, o.queue = true, nil
		o.conn.Close() // its receiver informs the state machine
	} else {
		o.queue = append(o.queue, f)
		o.bytes += len(f.Payload)
	}
	o.more.Signal()
}

// finishDrain is how long the leader reads from a follower that it has hung up
// on. It is less than the half second that a group gets to end.
const finishDrain = 250 * time.Millisecond

// close ends sending after the queued messages have been sent, or have failed.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Signal()
}

// run sends until close was called or a message could not be sent. It does not
// close the connection: the receiver sees it end soon and closes it, so that
// the follower gets the last messages, and the leader its.
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
