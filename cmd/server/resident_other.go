//go:build !linux

package main

// residentMiB is not implemented for this system, which reports only the peak of
// both parts together.
func residentMiB() (file, own float64) { return 0, 0 }
