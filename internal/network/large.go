package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// LargeMessage is how many bytes each side of a handshake sends at once in its last
// stage. It is more than a packet of any Ethernet holds, so that a path that drops large
// packets is found when a connection is made, and not when the first large message is
// lost.
const LargeMessage = 16 << 10

// ErrLarge: small messages of a handshake passed, but then a large one did not.
var ErrLarge = errors.New("small messages pass, but one of 16 KiB does not: the path drops large packets, so give every interface and switch on it the same MTU (to try, set that of this host to 1400); or the process at the other end is stopped, or a firewall drops what follows the beginning of a connection")

// ErrSilent: a connection was made, but then nothing came back.
var ErrSilent = errors.New("a connection is made, but nothing comes back on it: a firewall drops what follows its beginning, another program listens there, or the process is stopped")

// Large returns ErrLarge in place of a timeout error.
func Large(err error) error {
	if timedOut(err) {
		return ErrLarge
	}
	return err
}

// Silent adds ErrSilent to a timeout error of a connection that was made.
func Silent(err error) error {
	if timedOut(err) {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return err
}

// Lost reports whether an error means that the path makes connections and then drops what
// is sent on them.
func Lost(err error) bool { return errors.Is(err, ErrLarge) || errors.Is(err, ErrSilent) }

func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}
