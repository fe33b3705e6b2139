// Package filelock is a lock between processes: one of them makes what all
// share, such as an installed package or a download, while the others wait.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock waits until it holds the exclusive lock on path, a folder or a file that it
// creates if need be, or until ctx ends. release releases the lock; the end of the
// process does so too. Goroutines of one process exclude each other as well.
func Lock(ctx context.Context, path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EISDIR) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		for {
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { // the caller has given up, so release the lock once it is granted
			<-locked
			f.Close()
		}()
		return nil, fmt.Errorf("waiting for the lock on %s: %w", path, context.Cause(ctx))
	}
}
