//go:build unix

package main

import (
	"runtime"
	"syscall"
)

// peakMiB is the largest resident memory of the process so far, pages of the
// mapped model included.
func peakMiB() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return float64(u.Maxrss) / (1 << 20) // bytes there
	}
	return float64(u.Maxrss) / (1 << 10)
}
