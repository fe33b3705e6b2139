package tokenizer

// byteRune is the character for each byte in tokens and merges: the printable bytes of
// Latin-1 are themselves, the other 68 are U+0100, U+0101, ... in ascending order (the
// table of GPT-2).
var byteRune = func() (table [256]rune) {
	next := rune(0x100)
	for b := range rune(256) {
		switch {
		case b >= 33 && b <= 126, b >= 161 && b <= 172, b >= 174:
			table[b] = b
		default:
			table[b] = next
			next++
		}
	}
	return table
}()

// runeByte is the inverse of byteRune; -1 if no byte has that character.
var runeByte = func() (table [256 + 68]int16) {
	for i := range table {
		table[i] = -1
	}
	for b, r := range byteRune {
		table[r] = int16(b)
	}
	return table
}()

// unmapBytes returns the bytes of a token's text. A text with a character that is not in
// byteRune is taken literally (tokens written with U+FF5C).
func unmapBytes(text string) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return []byte(text)
		}
		out = append(out, byte(runeByte[r]))
	}
	return out
}
