package tcp

import (
	"errors"
	"net"
	"sync"
	"time"

	"ringmaster/distributed/reduce"
)

// Large operations. Every lane has a sender and a receiver, and one goroutine
// of the group reduces the blocks received from all peers.
//
// In a scattered reduction (two phases) chunk r of the vector goes to rank r in
// phase 0 and is reduced there in rank order; in phase 1 the result goes to all
// ranks, each part as soon as it is reduced. In place, the result cannot
// overwrite unsent data, because a part of the result exists only once its
// owner has received that data.

// startBulk hands the planned operation to the goroutines.
func (d *driver) startBulk() {
	d.each(func(l *lane) {
		if l.in == nil && l.inLen > 0 {
			l.room(l.inLen)
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aborted {
		return
	}
	d.reduced = 0
	if d.op.reduce {
		d.reducing = true
		d.left++
		d.reducer.Signal()
	}
	d.each(func(l *lane) {
		if l.sends || len(l.out2) > 0 {
			l.sending = true
			d.left++
			l.wake.Signal()
		}
		if l.receives || len(l.in2) > 0 {
			l.recving = true
			d.left++
			l.feed.Signal()
		}
	})
}

// done ends one goroutine's work on the operation. driver.mu is held.
func (d *driver) done() {
	if d.left--; d.left == 0 {
		d.waiter.Signal()
	}
}

// serve runs a goroutine of the group until the group fails: it works whenever busy is set,
// and waits for more otherwise. driver.mu guards busy.
func (d *driver) serve(busy *bool, more *sync.Cond, work func()) {
	for {
		d.mu.Lock()
		for !*busy && !d.aborted {
			more.Wait()
		}
		if !*busy {
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		work()
		d.mu.Lock()
		*busy = false
		d.done()
		d.mu.Unlock()
	}
}

// sender is the goroutine that writes to the peer.
func (l *lane) sender() {
	l.d.serve(&l.sending, l.wake, func() {
		err := l.conn.SetWriteDeadline(l.deadline())
		if err == nil && l.rest {
			_, err = l.bufs.WriteTo(l.conn.TCPConn)
		} else if err == nil {
			err = l.send()
		}
		if err == nil {
			err = l.conn.SetWriteDeadline(time.Time{})
		}
		if err != nil && !errors.Is(err, errAborted) {
			l.d.trouble(l, err)
		}
	})
}

// send is the sender's part of a large operation.
func (l *lane) send() error {
	d := l.d
	off, total := 0, len(l.out)
	if l.sends {
		for first := true; first || off < total; first = false {
			n := min(total-off, d.transport.opts.Chunk)
			if l.needsReady && first {
				n = min(n, max(0, d.credit-l.owes))
			} else if l.needsReady {
				if err := l.await(func() bool { return l.showed }); err != nil {
					return err
				}
			}
			if err := l.writeFrame(0, l.out, off, n); err != nil {
				return err
			}
			off += n
			d.mu.Lock()
			l.departed = off
			if d.op.inPlace {
				d.reducer.Signal()
			}
			d.mu.Unlock()
		}
	}
	total = len(l.out2)
	for off = 0; off < total; {
		n := min(total-off, d.transport.opts.Chunk)
		if err := l.await(func() bool { return d.reduced >= off+n }); err != nil {
			return err
		}
		if err := l.writeFrame(1, l.out2, off, n); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// await waits until ready, called with driver.mu held, returns true. ready
// depends on the progress of the receivers, so their deadlines bound the wait.
func (l *lane) await(ready func() bool) error {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for !ready() {
		if d.aborted {
			return errAborted
		}
		l.wake.Wait()
	}
	return nil
}

func (l *lane) writeFrame(phase uint8, part []byte, off, n int) error {
	h := l.frame(phase, len(part), off, n)
	h.put(l.header[:])
	if s := l.conn.over; s != nil {
		l.d.op.Sent(headerSize + int64(n))
		return s.stream(l.header[:], part[off:off+n])
	}
	l.vec = [2][]byte{l.header[:], part[off : off+n]}
	l.bufs = net.Buffers(l.vec[:])
	sent, err := l.bufs.WriteTo(l.conn.TCPConn)
	l.d.op.Sent(sent)
	return err
}

// receiver is the goroutine that reads from the peer.
func (l *lane) receiver() {
	l.d.serve(&l.recving, l.feed, func() {
		err := l.conn.SetReadDeadline(l.deadline())
		if err == nil {
			err = l.receive()
		}
		if err == nil {
			err = l.conn.SetReadDeadline(time.Time{})
		}
		if err != nil {
			l.d.trouble(l, err)
		}
	})
}

// receive is the receiver's part of a large operation.
func (l *lane) receive() error {
	if l.receives {
		into := l.in
		if into == nil && l.inLen > 0 {
			into = l.room(l.inLen)
		}
		if err := l.readPart(0, into); err != nil {
			return err
		}
	}
	if len(l.in2) > 0 {
		return l.readPart(1, l.in2)
	}
	return nil
}

// readPart reads all frames of a part.
func (l *lane) readPart(phase uint8, part []byte) error {
	d := l.d
	for off, first := 0, true; first || off < len(part); first = false {
		if err := l.readFull(l.inHeader[:]); err != nil {
			return err
		}
		h, err := parseHeader(l.inHeader[:])
		if err != nil {
			return err
		}
		want := l.expect(phase, len(part), off)
		if err := h.check(&want, l.peer); err != nil {
			return err
		}
		if first && phase == 0 {
			d.mu.Lock()
			l.showed = true
			d.op.timing.Heard = time.Now() // the value of the last peer remains
			l.wake.Signal()
			d.mu.Unlock()
		}
		if err := l.readFull(part[off : off+int(h.length)]); err != nil {
			return err
		}
		off += int(h.length)
		d.op.Received(int64(headerSize) + int64(h.length))
		if phase == 0 {
			d.mu.Lock()
			l.arrived = off
			d.reducer.Signal()
			d.mu.Unlock()
		}
	}
	return nil
}

// reduceAll reduces the target piece by piece, each as soon as it has been
// received from all peers and, in place, sent to all. It stops when the group
// fails.
func (d *driver) reduceAll() {
	blocks := make([][]byte, d.size)
	total := len(d.op.target)
	for off := 0; off < total; {
		end := min(off+d.transport.opts.Chunk, total)
		d.mu.Lock()
		for !d.has(end) && !d.aborted {
			d.reducer.Wait()
		}
		failed := d.aborted
		d.mu.Unlock()
		if failed {
			return
		}
		for r, l := range d.lanes {
			if l == nil {
				blocks[r] = d.op.src[off:end]
			} else {
				blocks[r] = l.payload()[off:end]
			}
		}
		reduce.Reduce(d.op.with, d.op.DType, d.op.target[off:end], blocks...)
		off = end
		d.mu.Lock()
		d.reduced = end
		for _, l := range d.lanes {
			if l != nil && len(l.out2) > 0 {
				l.wake.Signal()
			}
		}
		d.mu.Unlock()
	}
}

// has reports whether the bytes before end may be reduced. driver.mu is held.
func (d *driver) has(end int) bool {
	for _, l := range d.lanes {
		if l != nil && (l.arrived < end || d.op.inPlace && l.departed < end) {
			return false
		}
	}
	return true
}
