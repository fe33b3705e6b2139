package gguf

import "fmt"

// Type is the number that GGUF stores for the element type of a tensor. The values and
// the block sizes are those of the GGML type table (ggml.h, GGML_TYPE_*; block layouts in
// ggml-common.h).
type Type uint32

// The tensor types that this package knows the exact size of.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	IQ2XXS Type = 16
	IQ2XS  Type = 17
	IQ3XXS Type = 18
	IQ1S   Type = 19
	IQ4NL  Type = 20
	IQ3S   Type = 21
	IQ2S   Type = 22
	IQ4XS  Type = 23
	I8     Type = 24
	I32    Type = 26
	IQ1M   Type = 29
	BF16   Type = 30
	MXFP4  Type = 39
	NVFP4  Type = 40
)

// LastType is the largest number of a type that this package knows.
const LastType = NVFP4

// layout is the shape of one block: how many elements in how many bytes.
type layout struct {
	name     string
	elements int // elements of one block
	bytes    int // bytes of one block
}

var layouts = map[Type]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, I8: {"I8", 1, 1}, I32: {"I32", 1, 4},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, MXFP4: {"MXFP4", 32, 17}, IQ4NL: {"IQ4_NL", 32, 18},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ1S: {"IQ1_S", 256, 50}, IQ1M: {"IQ1_M", 256, 56},
	IQ2XXS: {"IQ2_XXS", 256, 66}, IQ2XS: {"IQ2_XS", 256, 74}, IQ2S: {"IQ2_S", 256, 82},
	NVFP4:  {"NVFP4", 64, 36},
	IQ3XXS: {"IQ3_XXS", 256, 98}, IQ3S: {"IQ3_S", 256, 110}, IQ4XS: {"IQ4_XS", 256, 136},
}

// Known reports whether the block layout of t is known.
func (t Type) Known() bool { _, ok := layouts[t]; return ok }

// Weights reports whether t holds weights: a known type other than I8 and I32.
func (t Type) Weights() bool { return t.Known() && t != I8 && t != I32 }

// BlockElements is the number of elements in one block, 0 for an unknown type.
func (t Type) BlockElements() int { return layouts[t].elements }

// BlockBytes is the size of one block in bytes, 0 for an unknown type.
func (t Type) BlockBytes() int { return layouts[t].bytes }

// RowBytes is the size in bytes of a row of n elements. n must be a multiple
// of BlockElements and t must be known; otherwise the result is 0.
func (t Type) RowBytes(n int) int {
	l := layouts[t]
	if l.elements == 0 || n%l.elements != 0 {
		return 0
	}
	return n / l.elements * l.bytes
}

// String is the name of the type in GGML or ik_llama.cpp, or "type N" for an unknown one.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	if f, ok := foreign[t]; ok {
		return f.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
