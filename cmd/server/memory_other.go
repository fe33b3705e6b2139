//go:build !linux && !darwin

package main

// memory is the host's memory in bytes.
type memory struct{ total, available int64 }

// hostMemory is not implemented for this system.
func hostMemory() (memory, bool) { return memory{}, false }

// cpuQuota is 0: this system has no quota that is known.
func cpuQuota() int { return 0 }
