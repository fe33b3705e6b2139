// Package accept takes connections from a listener that strangers can reach. Next
// survives temporary errors, such as a full table of files, for which Hold keeps a
// reserve. Pending bounds the connections that have not yet proved that they
// belong here.
//
// A server calls Hold once, then loops over Next, passes each connection to
// Pending.Add, and takes it out with Pending.Remove after its handshake.
package accept

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"time"
)

// The pause after an error doubles from the first to the second. The longest pause
// also bounds how late Next notices that the listener was closed.
const (
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Next waits for the next connection on ln. It returns an error only when ln was
// closed, because all other errors are temporary and a server must outlive them.
// If files or memory have run out, it calls room, which may close connections, and
// gives up a file of the reserve (Hold). Then it pauses and tries again. note
// receives the first error of each call. room and note may be nil.
func Next(ln net.Listener, room func(), note func(error)) (net.Conn, error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		c, err := ln.Accept()
		if err == nil {
			spare.refill()
			return c, nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if note != nil && pause == minPause {
			note(err)
		}
		if lacking(err) {
			if room != nil {
				room()
			}
			spare.give()
		}
		// The pause is needed after room, too, because a closed connection frees
		// its file only when the goroutine that reads from it has noticed.
		<-time.After(pause)
	}
}

// lacking reports whether accepting failed because files or memory have run out.
func lacking(err error) bool {
	causes := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}
	return slices.ContainsFunc(causes, func(e error) bool { return errors.Is(err, e) })
}
