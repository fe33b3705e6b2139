package assign

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
)

// Set is a set of experts of a layer. As text it is hexadecimal: expert e is bit e%8 of
// byte e/8, and zero bytes at the end are left out.
type Set []byte

// Add adds an expert, which must not be negative.
func (s *Set) Add(e int) {
	if n := e/8 + 1 - len(*s); n > 0 {
		*s = append(*s, make(Set, n)...)
	}
	(*s)[e/8] |= 1 << (e % 8)
}

// Has reports whether the set has an expert.
func (s Set) Has(e int) bool { return e/8 < len(s) && s[e/8]&(1<<(e%8)) != 0 }

// Len returns the number of experts in the set.
func (s Set) Len() (n int) {
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

// End returns one more than the greatest expert, 0 for an empty set.
func (s Set) End() int {
	for i, b := range slices.Backward(s) {
		if b != 0 {
			return 8*i + bits.Len8(b)
		}
	}
	return 0
}

// First returns the least expert, -1 for an empty set.
func (s Set) First() int {
	for i, b := range s {
		if b != 0 {
			return 8*i + bits.TrailingZeros8(b)
		}
	}
	return -1
}

// MarshalText implements encoding.TextMarshaler.
func (s Set) MarshalText() ([]byte, error) {
	return hex.AppendEncode(nil, s[:(s.End()+7)/8]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Set) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("a set of experts: %w", err)
	}
	*s = b
	return nil
}
