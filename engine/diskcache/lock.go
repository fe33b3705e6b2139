package diskcache

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file for this process until it is closed. The system releases the lock
// when the process ends, however it ends.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
