package host

import "golang.org/x/sys/unix"

// ReadMemory treats all installed memory as available: macOS releases its
// caches on demand.
func ReadMemory() (Memory, bool) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Memory{}, false
	}
	return Memory{Total: int64(n), Available: int64(n)}, true
}

// CPUQuota is 0: this system has no quota that is known.
func CPUQuota() int { return 0 }
