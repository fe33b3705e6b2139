package shaders

import (
	"fmt"
	"strings"

	"ringmaster/gguf"
)

// Tables are the tables of the codebook types, from package gguf, for decode.glsl: entries are
// signed bytes, four to a word, the first in the lowest byte.
func Tables() string {
	var s strings.Builder
	s.WriteString("// Written by tables.go.\n")
	words(&s, "iq4nl_words", pack(gguf.IQ4NLValues[:]))
	words(&s, "mxfp4_words", pack(gguf.MXFP4Values[:]))
	return s.String()
}

func pack(values []int8) []uint32 {
	packed := make([]uint32, len(values)/4)
	for i, v := range values {
		packed[i/4] |= uint32(uint8(v)) << (8 * (i % 4))
	}
	return packed
}

func words(s *strings.Builder, name string, values []uint32) {
	fmt.Fprintf(s, "const uint %s[%d] = {", name, len(values))
	for i, v := range values {
		if i%8 == 0 {
			s.WriteString("\n\t")
		}
		fmt.Fprintf(s, "0x%08xu, ", v)
	}
	s.WriteString("\n};\n")
}
