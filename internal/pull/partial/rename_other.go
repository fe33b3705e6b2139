//go:build unix && !linux && !darwin

package partial

import "golang.org/x/sys/unix"

// renameNew is what this system has no call for.
func renameNew(_, _ string) error { return unix.ENOSYS }
