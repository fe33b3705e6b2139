//go:build unix && !linux && !darwin

package partial

import "golang.org/x/sys/unix"

// renameNew fails because this system has no call for it.
func renameNew(_, _ string) error { return unix.ENOSYS }
