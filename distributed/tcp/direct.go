package tcp

import (
	"runtime"
	"time"

	"ringmaster/distributed/reduce"
)

// Small operations: the caller's goroutine writes and reads every part as one
// frame.

// spinner is how long to poll for data before sleeping. Polling helps because
// waking up takes longer than a small exchange, but a poll without result takes
// processor time from others. So the time is halved after each poll without
// result and doubled whenever data arrived within it.
type spinner struct{ now, least, most time.Duration }

func newSpinner(most time.Duration) spinner {
	most = max(most, 0)
	return spinner{now: most, least: most / 64, most: most}
}

func (s *spinner) paid()   { s.now = min(s.most, 2*s.now) }
func (s *spinner) missed() { s.now = max(s.least, s.now/2) }

// startDirect writes to every peer as much as the socket takes; the senders
// write the rest. Errors are reported by the wait.
func (d *driver) startDirect() {
	for i := 1; i < d.size; i++ {
		l := d.lanes[d.peerAt(i)]
		if l.receives {
			l.room(l.inLen)
		}
		if !l.sends {
			continue
		}
		h := l.frame(0, len(l.out), 0, len(l.out))
		h.put(l.header[:])
		all, err := l.write(l.out)
		if err != nil {
			d.trouble(l, err)
			return
		}
		d.op.Sent(headerSize + int64(len(l.out)))
		if all {
			continue
		}
		d.mu.Lock()
		l.rest, l.sending = true, true
		d.left++
		l.wake.Signal()
		d.mu.Unlock()
	}
}

// peerAt returns the i-th peer of this rank. Each rank begins with a different
// one.
func (d *driver) peerAt(i int) int { return (d.rank + i) % d.size }

// take reads what has been received of the lane's frame. It reports whether it
// read anything.
func (l *lane) take(block bool) (bool, error) {
	at := payloadAt - headerSize
	n, err := l.read(l.buf[at+l.got:at+l.want], block)
	if n == 0 || err != nil {
		return false, err
	}
	l.got += n
	l.d.op.Received(int64(n))
	if !l.checked && l.got >= headerSize {
		h, err := parseHeader(l.buf[at:payloadAt])
		if err == nil {
			want := l.expect(0, l.inLen, 0)
			want.length = uint32(l.inLen)
			if err = h.check(&want, l.peer); err == nil && h.length != want.length {
				err = desync(h, want, l.peer)
			}
		}
		if err != nil {
			return true, err
		}
		l.checked = true
	}
	return true, nil
}

// waitDirect reads all parts and puts them where they belong. It reports
// whether that succeeded; otherwise a suspicion exists or the group has failed.
func (d *driver) waitDirect() bool {
	if d.troubled() {
		return false
	}
	open, silent := 0, 0
	for _, l := range d.lanes {
		if l != nil && l.receives {
			open++
			silent++
		}
	}
	var tried int
	var begun time.Time
	for open > 0 {
		for i := 1; i < d.size; i++ {
			l := d.lanes[d.peerAt(i)]
			if !l.receives || l.got == l.want {
				continue
			}
			fresh := l.got == 0
			some, err := l.take(false)
			if err != nil {
				d.trouble(l, err)
				return false
			}
			if !some {
				continue
			}
			if fresh {
				if silent--; silent == 0 {
					d.op.timing.Heard = time.Now()
				}
			}
			if l.got == l.want {
				open--
			}
		}
		if open == 0 {
			if tried > 0 {
				d.spin.paid()
			}
			break
		}
		now := time.Now()
		if tried++; tried == 1 {
			begun = now
		}
		if now.Sub(begun) < d.spin.now {
			if tried%4 == 0 {
				runtime.Gosched()
			}
			continue
		}
		d.spin.missed()
		if !d.sleepDirect(&silent) {
			return false
		}
		break
	}
	if !d.drained() {
		return false
	}
	d.place()
	return true
}

// sleepDirect reads the rest of all parts, blocking in the kernel.
func (d *driver) sleepDirect(silent *int) bool {
	for i := 1; i < d.size; i++ {
		l := d.lanes[d.peerAt(i)]
		if !l.receives || l.got == l.want {
			continue
		}
		_ = l.conn.SetReadDeadline(l.deadline())
		for l.got < l.want {
			fresh := l.got == 0
			if _, err := l.take(true); err != nil {
				for _, other := range d.lanes {
					if other != nil && other != l && other.receives && other.got < other.want {
						_, _ = other.take(false) // so that only peers without data are blamed
					}
				}
				d.trouble(l, err)
				return false
			}
			if fresh {
				if *silent--; *silent == 0 {
					d.op.timing.Heard = time.Now()
				}
			}
		}
		_ = l.conn.SetReadDeadline(time.Time{})
	}
	return true
}

// drained waits until the senders have written what the sockets did not take at
// once. It reports whether that succeeded.
func (d *driver) drained() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.left > 0 && !d.aborted && d.suspicion == nil {
		d.waiter.Wait()
	}
	return !d.aborted && d.suspicion == nil
}

// place reduces or copies the received parts.
func (d *driver) place() {
	if d.op.reduce {
		for r, l := range d.lanes {
			if l == nil {
				d.blocks[r] = d.op.src
			} else {
				d.blocks[r] = l.payload()
			}
		}
		reduce.Reduce(d.op.with, d.op.DType, d.op.target, d.blocks...)
		return
	}
	for _, l := range d.lanes {
		if l != nil && l.in != nil {
			copy(l.in, l.payload())
		}
	}
}
