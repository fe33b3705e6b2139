//go:build metalsim

package control

// extern unsigned long sim_count(const char *what);
// extern void sim_idle(void);
// #include <stdlib.h>
import "C"

import "unsafe"

// Count is a counter of the device: the bytes "wired" by requests and command
// buffers, the "requests" for residency, and how often the memory of a residency set
// has "expired".
func Count(what string) int {
	s := C.CString(what)
	defer C.free(unsafe.Pointer(s))
	return int(C.sim_count(s))
}

// Idle lets a period pass: the memory of every residency set that was neither used
// nor requested in it is unwired.
func Idle() { C.sim_idle() }
