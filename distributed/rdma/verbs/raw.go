package verbs

import "unsafe"

// rawLib is the struct rmv_lib of a loaded library.
type rawLib struct{ p unsafe.Pointer }

// The Go types that C reads and writes have the layouts of rm_verbs.h.
var (
	_ [48]byte = [unsafe.Sizeof(WC{})]byte{}
	_ [24]byte = [unsafe.Sizeof(Request{})]byte{}
)
