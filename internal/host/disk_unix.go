//go:build unix

package host

import "syscall"

// DiskReads returns how often this process has waited for a page from the disk (major page
// faults), 0 if unknown.
func DiskReads() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return int64(u.Majflt) // 32 bits where the message of only64bit ends a build
}
