// What the mathematical functions of the system return.
#ifndef RM_MATH_BITS_H
#define RM_MATH_BITS_H

#include <stdint.h>

// rm_math_bits is a hash of the results of all functions of the C library that ops call
// and that may round differently in another one.
uint64_t rm_math_bits(void);

#endif
