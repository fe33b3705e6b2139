package verbs

import "unsafe"

// The Go types that C reads and writes have the layouts of rm_verbs.h.
var (
	_ [48]byte = [unsafe.Sizeof(WC{})]byte{}
	_ [24]byte = [unsafe.Sizeof(Request{})]byte{}
)
