package tokenizer

// The pre-tokenizer of DeepSeek V3 and V4: three successive expressions. Each splits the
// pieces left by the previous one into matches and the text between matches.
//
//	1  \p{N}{1,3}
//	2  [一-龥぀-ゟ゠-ヿ]+
//	3  [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+
//	   |[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//	   | ?[\p{P}\p{S}]+[\r\n]*
//	   |\s*[\r\n]+
//	   |\s+(?!\S)
//	   |\s+
//
// They are scanned by hand, each character a fixed number of times, because a
// backtracking engine is far too slow for a long prompt. The tests compare with
// a real engine.

// splitV3 is the splitter of "deepseek-v3".
func splitV3(s string, word func(string)) {
	// Expression 1: runs of numbers, cut every three characters. The other expressions
	// match no such character, so these pieces are final.
	start := 0
	for i := 0; i < len(s); {
		_, c, n := charAt(s, i)
		if c != number {
			i += n
			continue
		}
		splitHan(s[start:i], word)
		end := i + n
		for range 2 {
			if end == len(s) {
				break
			}
			_, c, n := charAt(s, end)
			if c != number {
				break
			}
			end += n
		}
		word(s[i:end])
		i, start = end, end
	}
	splitHan(s[start:], word)
}

// splitHan applies expression 2: it separates runs of Han and kana from the rest. Such a
// run is a piece like any other for expression 3, which splits it at the marks and signs
// among the kana (U+30FB, U+309B).
func splitHan(s string, word func(string)) {
	start, inside := 0, false
	for i := 0; i < len(s); {
		r, _, n := charAt(s, i)
		if han := r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF; han != inside {
			splitWords(s[start:i], word)
			start, inside = i, han
		}
		i += n
	}
	splitWords(s[start:], word)
}

// splitWords applies expression 3. A character at which no match begins joins the
// preceding ones at which none began either.
func splitWords(s string, word func(string)) {
	rest := 0 // s[rest:i] has matched nothing so far
	for i := 0; i < len(s); {
		end := matchWord(s, i)
		if end == i {
			_, _, n := charAt(s, i)
			i += n
			continue
		}
		if rest < i {
			word(s[rest:i])
		}
		word(s[i:end])
		i, rest = end, end
	}
	if rest < len(s) {
		word(s[rest:])
	}
}

// matchWord returns the end of the match of expression 3 that begins at s[i], or i if
// there is none. It tries the alternatives in order.
func matchWord(s string, i int) int {
	r, c, n := charAt(s, i)
	next := i + n

	// ASCII punctuation followed by ASCII letters: "'s", ".com", "_case".
	if n == 1 && (c == punct || c == symbol) {
		end := next
		for end < len(s) && (s[end]|0x20) >= 'a' && (s[end]|0x20) <= 'z' {
			end++
		}
		if end > next {
			return end
		}
	}

	// Letters and marks, preceded by one character that is not a line end,
	// letter, punctuation or symbol. If that character is itself a mark,
	// backtracking over it leads to the same end.
	if c == letter || c == mark {
		return letters(s, next)
	}
	if (c == space || c == number || c == other) && r != '\r' && r != '\n' {
		if end := letters(s, next); end > next {
			return end
		}
	}

	// Punctuation and symbols, with a space before and line ends after them.
	signs := i
	if r == ' ' {
		signs = next
	}
	end := signs
	for end < len(s) {
		_, c, n := charAt(s, end)
		if c != punct && c != symbol {
			break
		}
		end += n
	}
	if end > signs {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}

	if c != space {
		return i
	}
	return spaces(s, i)
}

// letters returns the end of the run of letters and marks that begins at s[i].
func letters(s string, i int) int {
	for i < len(s) {
		_, c, n := charAt(s, i)
		if c != letter && c != mark {
			break
		}
		i += n
	}
	return i
}

// spaces returns the end of the match at s[i], which is white space, of
//
//	\s*[\r\n]+|\s+(?!\S)|\s+
//
// That is: up to the last line end of the run of white space, if it has one;
// otherwise all of a run that ends the piece; otherwise all but the last
// character of the run, which belongs to what follows; otherwise that one
// character.
func spaces(s string, i int) int {
	lineEnd, last, end := i, i, i
	for end < len(s) {
		r, c, n := charAt(s, end)
		if c != space {
			break
		}
		last = end
		end += n
		if r == '\r' || r == '\n' {
			lineEnd = end
		}
	}
	switch {
	case lineEnd > i:
		return lineEnd
	case end == len(s) || last == i:
		return end
	default:
		return last
	}
}
