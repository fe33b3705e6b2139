//go:build cgo

package cpu

/*
#include "math_bits.h"
*/
import "C"

import "fmt"

// MathBits is a hash of what the exponential, logarithm, sine and cosine of the system's C
// library return. Versions of a library, and libraries, differ in the last bits of them, and
// so do the results of ops on hosts whose hashes differ, although the program is the same.
func MathBits() string { return fmt.Sprintf("%016x", uint64(C.rm_math_bits())) }
