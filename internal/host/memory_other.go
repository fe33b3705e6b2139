//go:build !linux && !darwin

package host

// ReadMemory is not implemented for this system.
func ReadMemory() (Memory, bool) { return Memory{}, false }

// CPUQuota is 0: this system has no quota that is known.
func CPUQuota() int { return 0 }
