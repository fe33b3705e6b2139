package host

import "golang.org/x/sys/unix"

// ReadMemory counts all installed memory as available, because macOS releases its caches
// on demand.
func ReadMemory() (Memory, bool) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Memory{}, false
	}
	return Memory{Total: int64(n), Available: int64(n)}, true
}

// CPUQuota returns 0, because this system has no known quota.
func CPUQuota() int { return 0 }
