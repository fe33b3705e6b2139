package tcp

import (
	"errors"
	"io"
	"net"
	"time"

	"ringmaster/distributed/reduce"
)

// Large operations: every lane has a sender and a receiver, and one goroutine
// of the group reduces what has come from all.
//
// In a scattered reduction (two phases) chunk r of the vector goes to rank r
// in phase 0, is reduced there in the order of the ranks, and in phase 1 the
// result goes to all, each part as soon as it is reduced. A part of the result
// cannot overwrite in place what is still to be sent: it exists only when its
// owner has had that.

// startBulk hands the planned operation to the goroutines.
func (g *group) startBulk() {
	for _, l := range g.lanes {
		if l != nil && l.in == nil && l.inLen > 0 {
			l.room(l.inLen)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return
	}
	g.reduced = 0
	if g.op.reduce {
		g.reducing = true
		g.left++
		g.reducer.Signal()
	}
	for _, l := range g.lanes {
		if l == nil {
			continue
		}
		if l.sends || len(l.out2) > 0 {
			l.sending = true
			g.left++
			l.wake.Signal()
		}
		if l.receives || len(l.in2) > 0 {
			l.recving = true
			g.left++
			l.feed.Signal()
		}
	}
}

// waitBulk waits for the goroutines and reports whether all went well.
func (g *group) waitBulk() bool { return g.drained() }

// settleBulk waits until the goroutines have let go of a failed operation: its
// connections are closed, so that is at once.
func (g *group) settleBulk() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.left > 0 {
		g.waiter.Wait()
	}
}

// done ends a goroutine's work on the operation. group.mu is held.
func (g *group) done() {
	if g.left--; g.left == 0 {
		g.waiter.Signal()
	}
}

// errFailed ends the work of a goroutine when the group has failed.
var errFailed = errors.New("the group has failed")

// sender is the goroutine that writes to the peer.
func (l *lane) sender() {
	g := l.g
	for {
		g.mu.Lock()
		for !l.sending && g.cause == nil {
			l.wake.Wait()
		}
		if !l.sending {
			g.mu.Unlock()
			return
		}
		rest := l.rest
		g.mu.Unlock()
		err := l.conn.SetWriteDeadline(l.deadline())
		if err == nil && rest {
			_, err = l.bufs.WriteTo(l.conn)
		} else if err == nil {
			err = l.send()
		}
		if err == nil {
			err = l.conn.SetWriteDeadline(time.Time{})
		}
		if err != nil && !errors.Is(err, errFailed) {
			g.trouble(l, err)
		}
		g.mu.Lock()
		l.sending, l.rest = false, false
		g.done()
		g.mu.Unlock()
	}
}

// send is the sender's part of a large operation.
func (l *lane) send() error {
	g := l.g
	off, total := 0, len(l.out)
	if l.sends {
		for first := true; first || off < total; first = false {
			n := min(total-off, g.opts.Chunk)
			if l.needsReady && first {
				n = min(n, max(0, g.credit-l.owes))
			} else if l.needsReady {
				if err := l.await(func() bool { return l.showed }); err != nil {
					return err
				}
			}
			if err := l.writeFrame(0, l.out, off, n); err != nil {
				return err
			}
			off += n
			g.mu.Lock()
			l.departed = off
			if g.op.inPlace {
				g.reducer.Signal()
			}
			g.mu.Unlock()
		}
	}
	total = len(l.out2)
	for off = 0; off < total; {
		n := min(total-off, g.opts.Chunk)
		if err := l.await(func() bool { return g.reduced >= off+n }); err != nil {
			return err
		}
		if err := l.writeFrame(1, l.out2, off, n); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// await waits until ready holds under group.mu. Its end is bounded by the
// deadlines of the receivers, on whose progress it depends.
func (l *lane) await(ready func() bool) error {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for !ready() {
		if g.cause != nil {
			return errFailed
		}
		l.wake.Wait()
	}
	return nil
}

func (l *lane) writeFrame(phase uint8, part []byte, off, n int) error {
	h := l.frame(phase, len(part), off, n)
	h.put(l.header[:])
	l.vec = [2][]byte{l.header[:], part[off : off+n]}
	l.bufs = net.Buffers(l.vec[:])
	sent, err := l.bufs.WriteTo(l.conn)
	l.g.sent.Add(sent)
	return err
}

// receiver is the goroutine that reads from the peer.
func (l *lane) receiver() {
	g := l.g
	for {
		g.mu.Lock()
		for !l.recving && g.cause == nil {
			l.feed.Wait()
		}
		if !l.recving {
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		err := l.conn.SetReadDeadline(l.deadline())
		if err == nil {
			err = l.receive()
		}
		if err == nil {
			err = l.conn.SetReadDeadline(time.Time{})
		}
		if err != nil {
			g.trouble(l, err)
		}
		g.mu.Lock()
		l.recving = false
		g.done()
		g.mu.Unlock()
	}
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
	g := l.g
	for off, first := 0, true; first || off < len(part); first = false {
		if _, err := io.ReadFull(l.conn, l.inHeader[:]); err != nil {
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
			g.mu.Lock()
			l.showed = true
			g.op.heard = time.Now() // that of the last peer stays
			l.wake.Signal()
			g.mu.Unlock()
		}
		if _, err := io.ReadFull(l.conn, part[off:off+int(h.length)]); err != nil {
			return err
		}
		off += int(h.length)
		g.received.Add(int64(headerSize) + int64(h.length))
		if phase == 0 {
			g.mu.Lock()
			l.arrived = off
			g.reducer.Signal()
			g.mu.Unlock()
		}
	}
	return nil
}

// reduceLoop is the goroutine that reduces.
func (g *group) reduceLoop() {
	for {
		g.mu.Lock()
		for !g.reducing && g.cause == nil {
			g.reducer.Wait()
		}
		if !g.reducing {
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		g.reduceAll()
		g.mu.Lock()
		g.reducing = false
		g.done()
		g.mu.Unlock()
	}
}

// reduceAll reduces the target piece by piece, each as soon as it has come
// from all peers and, in place, has gone to all. It stops when the group fails.
func (g *group) reduceAll() {
	blocks := make([][]byte, g.size)
	total := len(g.op.target)
	for off := 0; off < total; {
		end := min(off+g.opts.Chunk, total)
		g.mu.Lock()
		for !g.has(end) && g.cause == nil {
			g.reducer.Wait()
		}
		failed := g.cause != nil
		g.mu.Unlock()
		if failed {
			return
		}
		for r, l := range g.lanes {
			if l == nil {
				blocks[r] = g.op.src[off:end]
			} else {
				blocks[r] = l.payload()[off:end]
			}
		}
		reduce.Reduce(g.op.with, g.op.dtype, g.op.target[off:end], blocks...)
		off = end
		g.mu.Lock()
		g.reduced = end
		for _, l := range g.lanes {
			if l != nil && len(l.out2) > 0 {
				l.wake.Signal()
			}
		}
		g.mu.Unlock()
	}
}

// has tells whether the bytes before end may be reduced. group.mu is held.
func (g *group) has(end int) bool {
	for _, l := range g.lanes {
		if l != nil && (l.arrived < end || g.op.inPlace && l.departed < end) {
			return false
		}
	}
	return true
}
