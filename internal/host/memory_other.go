//go:build !linux && !darwin

package host

// ReadMemory is not implemented for this system.
func ReadMemory() (Memory, bool) { return Memory{}, false }

// CPUQuota returns 0, because this system has no known quota.
func CPUQuota() int { return 0 }
