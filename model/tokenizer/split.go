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
// a real engine. Expressions 1 and 2 and the runs of letters have loops of their own,
// because isolate and runOf call a function for each character of a text.

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
		end := matchNumbers(s, i)
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
			isolate(s[start:i], matchWord, word)
			start, inside = i, han
		}
		i += n
	}
	isolate(s[start:], matchWord, word)
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
	end := signs(s, i, func(_ rune, c class) bool { return c == punct || c == symbol })
	if end == i && c == space {
		return spaces(s, i)
	}
	return end
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

// signs returns the end of the match of ` ?X+[\r\n]*` at s[i], where X is the set of
// characters that in accepts, or i if there is none.
func signs(s string, i int, in func(r rune, c class) bool) int {
	start := i
	if s[i] == ' ' {
		start++
	}
	end := runOf(s, start, in)
	if end == start {
		return i
	}
	return runOf(s, end, func(r rune, _ class) bool { return r == '\r' || r == '\n' })
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
