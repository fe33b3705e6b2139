//go:build cgo

package cpu

/*
#include "math_bits.h"
*/
import "C"

import "fmt"

// MathBits is a hash of what the exponential, logarithm, sine and cosine of the system's
// C library return. Libraries and their versions differ in the last bits of them. Ops on
// two hosts may therefore differ although the program is the same, because ops call these
// functions.
func MathBits() string { return fmt.Sprintf("%016x", uint64(C.rm_math_bits())) }
