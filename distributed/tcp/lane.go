package tcp

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lane is the connection to one peer. out and in hold what an operation sends
// and receives on it; driver.mu guards the fields that record progress.
type lane struct {
	d    *driver
	peer int
	conn socket
	raw  syscall.RawConn

	owes, owed    int              // bytes sent and received since the other side last showed that it had reached this operation
	msgOut, msgIn uint64           // messages sent and received
	header        [headerSize]byte // of the frame being sent
	inHeader      [headerSize]byte
	vec           [2][]byte // header and payload of the frame being sent
	bufs          net.Buffers
	buf           []byte // received frame or part, its payload from payloadAt

	// The current operation.
	out, out2   []byte // part to send in phase 0 and 1
	in          []byte // where the part received in phase 0 goes, nil for buf
	in2         []byte // the same for phase 1
	inLen       int    // bytes of the part received in phase 0
	sends       bool   // frames are sent in phase 0
	receives    bool   // frames are received in phase 0
	needsReady  bool   // out is longer than the credit
	needsReady2 bool   // the peer's part is longer than the credit
	tells, told bool   // an empty frame goes to the peer, is expected from it

	// Small operations (direct.go).
	got     int // frame bytes received so far
	want    int // length of the frame in bytes
	checked bool
	rest    bool // the socket did not take all of bufs at once
	reads   func(fd uintptr) bool
	writes  func(fd uintptr) bool
	head    []byte // argument of writes: what goes before chunk
	chunk   []byte // argument of reads and writes
	block   bool   // reads blocks until there is data
	n       int    // their result
	errno   syscall.Errno
	iov     vector

	// Large operations (bulk.go); guarded by driver.mu.
	wake     *sync.Cond // wakes the sender
	feed     *sync.Cond // wakes the receiver
	sending  bool
	recving  bool
	showed   bool // the peer has sent a frame of this operation
	arrived  int  // bytes of phase 0 received
	departed int  // bytes of phase 0 sent
}

// payloadAt is where the payload of a received frame begins in lane.buf, chosen
// to align it.
const payloadAt = 64

func newLane(d *driver, peer int, c socket) (*lane, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &lane{d: d, peer: peer, conn: c, raw: raw, wake: sync.NewCond(&d.mu), feed: sync.NewCond(&d.mu)}
	l.reads = func(fd uintptr) bool {
		for {
			l.n, l.errno = readNow(fd, l.chunk)
			if l.errno != syscall.EINTR {
				return l.errno != syscall.EAGAIN || !l.block
			}
		}
	}
	l.writes = func(fd uintptr) bool {
		for {
			l.n, l.errno = writeNow(fd, &l.iov, l.head, l.chunk)
			if l.errno != syscall.EINTR {
				return true
			}
		}
	}
	return l, nil
}

// read takes what has been received, at most len(b) bytes; 0 means nothing yet.
// With block it waits for the first byte until the deadline of the connection.
func (l *lane) read(b []byte, block bool) (int, error) {
	if l.conn.over != nil {
		return l.conn.over.read(b, block)
	}
	l.chunk, l.block = b, block
	err := l.raw.Read(l.reads)
	switch {
	case err != nil:
		return 0, err
	case l.errno == syscall.EAGAIN:
		return 0, nil
	case l.errno != 0:
		return 0, l.errno
	case l.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return l.n, nil
}

// write gives the kernel as much of the header and body as it takes without
// blocking. It returns whether that was all; the rest is in bufs.
func (l *lane) write(body []byte) (bool, error) {
	head := l.header[:]
	if l.conn.over != nil {
		records, err := l.conn.over.encrypt(head, body)
		if err != nil {
			return false, err
		}
		head, body = records, nil
	}
	l.head, l.chunk = head, body
	err := l.raw.Write(l.writes)
	switch {
	case err != nil:
		return false, err
	case l.errno == syscall.EAGAIN:
		l.n = 0
	case l.errno != 0:
		return false, l.errno
	}
	if l.n == len(head)+len(body) {
		return true, nil
	}
	l.vec = [2][]byte{head[min(l.n, len(head)):], body[max(0, l.n-len(head)):]}
	l.bufs = net.Buffers(l.vec[:])
	return false, nil
}

// readFull fills b, within the deadline of the connection.
func (l *lane) readFull(b []byte) error {
	if s := l.conn.over; s != nil {
		s.below.poll = false
		_, err := io.ReadFull(s.tls, b)
		return err
	}
	_, err := io.ReadFull(l.conn, b)
	return err
}

// room makes buf large enough for a payload of n bytes and returns that part of
// it.
func (l *lane) room(n int) []byte {
	if len(l.buf) < payloadAt+n {
		l.buf = make([]byte, payloadAt+n)
	}
	return l.buf[payloadAt : payloadAt+n]
}

// payload returns the part of phase 0 that was received into buf.
func (l *lane) payload() []byte { return l.buf[payloadAt : payloadAt+l.inLen] }

// plan sets what the operation moves on this lane. in is nil for a part that is
// received into buf.
func (l *lane) plan(out, in []byte, inLen int, always bool) {
	l.out, l.in, l.inLen = out, in, inLen
	l.out2, l.in2 = nil, nil
	l.tells, l.told = false, false
	l.needsReady = l.owes+len(out) > l.d.credit
	l.needsReady2 = l.owed+inLen > l.d.credit
	l.sends = len(out) > 0 || always || l.needsReady2
	l.receives = inLen > 0 || always || l.needsReady
	l.got, l.want, l.checked, l.rest = 0, headerSize+inLen, false, false
	l.showed, l.arrived, l.departed = false, 0, 0
}

// settle updates the credit after an operation that completed. It uses only
// what both sides know, so that they agree. A peer in a large operation
// receives as data arrives; one in a small operation receives only once it
// waits.
func (l *lane) settle(scatter bool) {
	count := func(credit, n int, heard, large bool) int {
		switch {
		case scatter || heard && large:
			return 0
		case heard:
			return n
		}
		return credit + n
	}
	l.owes = count(l.owes, len(l.out), l.receives, l.needsReady)
	l.owed = count(l.owed, l.inLen, l.sends, l.needsReady2)
	if l.tells {
		l.msgOut++
	}
	if l.told {
		l.msgIn++
	}
	l.out, l.out2, l.in, l.in2 = nil, nil, nil, nil
}

// frame returns the header of the next frame of this rank's part.
func (l *lane) frame(phase uint8, total, offset, length int) header {
	o := &l.d.op
	h := header{epoch: l.d.link.Epoch, seq: o.Seq, op: o.Kind.OnWire(), dtype: o.DType, phase: phase, root: uint8(o.Root),
		length: uint32(length), offset: uint64(offset), total: uint64(total)}
	if o.Kind.Message() {
		h.seq = l.msgOut
	}
	return h
}

// expect returns the header that must arrive next.
func (l *lane) expect(phase uint8, total, offset int) header {
	h := l.frame(phase, total, offset, 0)
	if l.d.op.Kind.Message() {
		h.seq = l.msgIn
	}
	return h
}

// undelivered lists the peers that an operation is still waiting for and
// returns the first of them, or peer if the list is empty. A peer that has not
// sent its own part comes first, because the others may be waiting for it
// themselves.
func (d *driver) undelivered(peer int) (int, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, late := range []func(l *lane) (string, bool){
		func(l *lane) (string, bool) {
			n := l.arrived
			if !d.op.bulk {
				n = max(0, l.got-headerSize)
			}
			missing := n < l.inLen || !d.op.bulk && l.got < l.want || d.op.bulk && l.recving && !l.showed
			return fmt.Sprintf("%s, received %d of %d bytes", d.link.Name(l.peer), n, l.inLen), l.receives && missing
		},
		func(l *lane) (string, bool) {
			return fmt.Sprintf("%s, sent %d of %d bytes", d.link.Name(l.peer), l.departed, len(l.out)), l.sending
		},
		func(l *lane) (string, bool) {
			return fmt.Sprintf("%s, its result did not arrive", d.link.Name(l.peer)), l.recving
		},
	} {
		var who []string
		first := peer
		for _, l := range d.lanes {
			if l == nil {
				continue
			}
			if s, ok := late(l); ok {
				if len(who) == 0 {
					first = l.peer
				}
				who = append(who, s)
			}
		}
		if len(who) > 0 {
			return first, strings.Join(who, "; ")
		}
	}
	return peer, d.link.Name(peer)
}

// deadline is the operation's deadline, for waits in the kernel.
func (l *lane) deadline() time.Time { return l.d.op.Deadline }

// peek finds out whether a peer that this rank only sends to is still alive. It
// is needed because the kernel accepts data even for a peer that is gone.
func (d *driver) peek() {
	for _, l := range d.lanes {
		if l == nil || !l.sends || l.receives {
			continue
		}
		var n int
		var failure error
		err := l.raw.Read(func(fd uintptr) bool {
			var b [1]byte
			n, _, failure = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return true
		})
		switch {
		case err != nil:
			d.trouble(l, err)
		case failure == nil && n == 0:
			d.trouble(l, io.EOF)
		case failure != nil && failure != syscall.EAGAIN && failure != syscall.EINTR:
			d.trouble(l, failure)
		}
	}
}
