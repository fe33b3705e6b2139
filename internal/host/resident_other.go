//go:build !linux

package host

// ResidentMiB is not implemented for this system, which reports only the peak of
// both parts together.
func ResidentMiB() (file, own float64) { return 0, 0 }

// HugeFileMiB returns 0, because only Linux reports it.
func HugeFileMiB() float64 { return 0 }
