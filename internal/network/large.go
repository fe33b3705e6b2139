package network

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// LargeMessage is how many bytes each side of a handshake sends at once, in its last stage:
// more than a packet of any Ethernet holds, so that a path that drops large packets is found
// when a connection is made, and not when the first large message gets lost.
const LargeMessage = 16 << 10

// ErrLarge: small messages of a handshake passed, and then a large one did not.
var ErrLarge = errors.New("small messages pass, but one of 16 KiB does not: the path drops large packets, so give every interface and switch on it the same MTU (to try, set that of this host to 1400); or the process at the other end is stopped")

// Large returns ErrLarge in place of an error that says that nothing passed for too long.
func Large(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return ErrLarge
	}
	return err
}
