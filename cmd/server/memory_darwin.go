package main

import "golang.org/x/sys/unix"

// memory is what the machine has, in bytes.
type memory struct{ total, available int64 }

// systemMemory takes the installed memory for free: what macOS keeps of it in
// caches it gives back on demand.
func systemMemory() (memory, bool) {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return memory{}, false
	}
	return memory{total: int64(n), available: int64(n)}, true
}
