package shaders

import (
	"fmt"
	"strings"
	"sync"

	"ringmaster/gguf"
)

// tables are the tables of the codebook types, from package gguf, as constants. Points of
// the grids are words of four elements, the first in the lowest byte. Those of IQ2 and IQ1
// have eight elements: point i is words 2*i and 2*i+1, because GPU registers have 32 bits.
var tables = sync.OnceValue(func() string {
	var s strings.Builder
	const word = "0x%08x"
	table(&s, "uint", "iq2xxs_grid", word, halves(gguf.IQ2XXSGrid[:]))
	table(&s, "uint", "iq2xs_grid", word, halves(gguf.IQ2XSGrid[:]))
	table(&s, "uint", "iq2s_grid", word, halves(gguf.IQ2SGrid[:]))
	table(&s, "uint", "iq3xxs_grid", word, gguf.IQ3XXSGrid[:])
	table(&s, "uint", "iq3s_grid", word, gguf.IQ3SGrid[:])
	table(&s, "uint", "iq1_grid", word, halves(gguf.IQ1SGrid[:]))

	// The signs of four elements by their mask, and of eight with an even number of minuses.
	four := make([]uint32, 16)
	for mask := range four {
		for j := range 4 {
			sign := uint32(0x80) // plus
			if mask>>j&1 == 1 {
				sign = 0x7f
			}
			four[mask] |= sign << (8 * j)
		}
	}
	var even []uint32
	for _, mask := range gguf.SignMasks {
		even = append(even, four[mask&15], four[mask>>4])
	}
	table(&s, "uint", "even_signs", word, even)
	table(&s, "uint", "four_signs", word, four)
	table(&s, "float", "iq4nl_values", "%d", gguf.IQ4NLValues[:])
	return s.String()
})

// halves splits the entries into words of 32 bits, low ones first.
func halves(entries []uint64) []uint32 {
	words := make([]uint32, 0, 2*len(entries))
	for _, e := range entries {
		words = append(words, uint32(e), uint32(e>>32))
	}
	return words
}

// table writes one array, a number a line.
func table[T any](s *strings.Builder, typ, name, format string, values []T) {
	fmt.Fprintf(s, "constant %s %s[%d] = {\n", typ, name, len(values))
	for _, v := range values {
		fmt.Fprintf(s, format+",\n", v)
	}
	s.WriteString("};\n")
}
