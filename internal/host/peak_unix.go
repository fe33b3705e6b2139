//go:build unix

package host

import (
	"runtime"
	"syscall"
)

// PeakMiB returns the peak resident memory of the process, including pages of the mapped
// model; 0 if unknown.
func PeakMiB() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return float64(u.Maxrss) / (1 << 20) // macOS counts bytes, others KiB
	}
	return float64(u.Maxrss) / (1 << 10)
}
