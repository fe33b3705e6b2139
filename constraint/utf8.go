package constraint

import "unicode/utf8"

// Runes matches one character of a list of ranges, given by pairs of the first and the
// last, as its bytes in UTF-8. Surrogates are not characters.
func Runes(pairs ...rune) *Expr {
	var out []*Expr
	var ascii Set
	one := false
	for i := 0; i+1 < len(pairs); i += 2 {
		low, high := max(pairs[i], 0), min(pairs[i+1], utf8.MaxRune)
		if low < utf8.RuneSelf && low <= high {
			ascii.Add(byte(low), byte(min(high, utf8.RuneSelf-1)))
			one = true
			low = utf8.RuneSelf
		}
		for _, part := range [][2]rune{{low, min(high, 0xD7FF)}, {max(low, 0xE000), high}} {
			if part[0] <= part[1] {
				out = append(out, encoded(part[0], part[1])...)
			}
		}
	}
	if one {
		out = append(out, Bytes(ascii))
	}
	return Choice(out...)
}

// encoded returns the sequences of bytes of the characters from low to high; none of them
// is ASCII.
func encoded(low, high rune) []*Expr {
	// Split so that all characters have the same length.
	for _, last := range []rune{0x7FF, 0xFFFF} {
		if low <= last && last < high {
			return append(encoded(low, last), encoded(last+1, high)...)
		}
	}
	// Split so that the first bytes are the same, or the last are any.
	for shift := 6; shift <= 18; shift += 6 {
		mask := rune(1)<<shift - 1
		if low&^mask == high&^mask {
			continue
		}
		if low&mask != 0 {
			return append(encoded(low, low|mask), encoded((low|mask)+1, high)...)
		}
		if high&mask != mask {
			return append(encoded(low, (high&^mask)-1), encoded(high&^mask, high)...)
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], low)
	utf8.EncodeRune(b[:], high)
	parts := make([]*Expr, n)
	for i := range n {
		var s Set
		s.Add(a[i], b[i])
		parts[i] = Bytes(s)
	}
	return []*Expr{Sequence(parts...)}
}
