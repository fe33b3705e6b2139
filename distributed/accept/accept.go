// Package accept takes connections from a listener that strangers can reach:
// Next survives errors that pass, such as a full table of files, for which Hold
// keeps a reserve, and Pending bounds the connections that have not proved yet
// that they belong here.
package accept

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// The pause after an error doubles from the first to the second. The longest one
// also bounds how late Next notices that the listener was closed.
const (
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Next waits for the next connection on ln. The only error that it returns is
// that ln was closed: any other passes sooner or later, and what listens must
// outlive it. After such an error it calls room if the cause is a lack of files
// or of memory, which may close connections to free some, and gives up a file of
// the reserve (Hold); then it pauses and tries again. note gets the first error of
// each call. Both may be nil.
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
		// Also after room: a closed connection frees its file only when the
		// goroutine that reads from it has noticed.
		<-time.After(pause)
	}
}

// lacking reports whether a connection could not be accepted for lack of files
// or memory.
func lacking(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
