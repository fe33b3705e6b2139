package gguf

// halfScales are the values of HalfScales.
var halfScales = map[Type][]int{
	Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, IQ4NL: {0},
	Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208},
	IQ1S: {0}, IQ2XXS: {0}, IQ2XS: {0}, IQ2S: {0}, IQ3XXS: {0}, IQ3S: {0}, IQ4XS: {0},
}

// HalfScales are the offsets in a block of the float16 values that scale it. Every other byte
// of a block may be arbitrary, except the scales of MXFP4 and NVFP4 (bytes) and of IQ1_M (the
// top nibbles of the last four words).
func (t Type) HalfScales() []int { return halfScales[t] }
