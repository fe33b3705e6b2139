package main

import "golang.org/x/sys/unix"

// memory is the host's memory in bytes.
type memory struct{ total, available int64 }

// hostMemory treats all installed memory as available: macOS releases its
// caches on demand.
func hostMemory() (memory, bool) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return memory{}, false
	}
	return memory{total: int64(n), available: int64(n)}, true
}

// cpuQuota is 0: this system has no quota that is known.
func cpuQuota() int { return 0 }
