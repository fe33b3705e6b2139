//go:build unix

package accept

import (
	"math"
	"syscall"
)

// FileLimit returns how many files this process may have open at once.
func FileLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
