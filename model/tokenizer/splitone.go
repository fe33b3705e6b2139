package tokenizer

import "strings"

// The pre-tokenizers with one expression. Its alternatives are tried in order at each
// character; one of them always matches. Both expressions end with
//
//	|\p{N}{1,3}
//	| ?[^\s\p{L}\p{N}]+[\r\n]*
//	|\s*[\r\n]+
//	|\s+(?!\S)
//	|\s+
//
// and differ in how they find words. "glm4" begins with
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	|[^\r\n\p{L}\p{N}]?\p{L}+
//
// and "kimi-k2", where U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L is
// [\p{Ll}\p{Lm}\p{Lo}\p{M}], both without Han, with
//
//	[\p{Han}]+
//	|[^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|'t|'re|'ve|'m|'ll|'d)?

// splitGLM is the splitter of "glm4".
func splitGLM(s string, word func(string)) { isolate(s, matchGLM, word) }

func matchGLM(s string, i int) int {
	if end := contraction(s, i); end > i {
		return end
	}
	isLetter := func(_ rune, c class) bool { return c == letter }
	if end := runOf(s, prefix(s, i), isLetter); end > prefix(s, i) {
		return end
	}
	return matchRest(s, i)
}

// splitKimi is the splitter of "kimi-k2".
func splitKimi(s string, word func(string)) {
	k := kinds()
	isolate(s, func(s string, i int) int { return matchKimi(k, s, i) }, word)
}

func matchKimi(k *table[kind], s string, i int) int {
	isHan := func(r rune, _ class) bool { return k.at(r) == han }
	if end := runOf(s, i, isHan); end > i {
		return end
	}
	start := prefix(s, i)
	word, capitals := kimiWord(k, s, start)
	if word < 0 && start > i {
		// Without the character before, because it can only be a mark, which is in U and
		// L.
		word, _ = kimiWord(k, s, i)
	}
	switch {
	case word >= 0:
		return contraction(s, word)
	case capitals >= 0:
		return contraction(s, capitals)
	}
	return matchRest(s, i)
}

// kimiWord returns the end of U*L+ at s[i], and that of U+L* if the former does not
// match; -1 if neither does.
func kimiWord(k *table[kind], s string, i int) (word, capitals int) {
	start, caseless := i, -1 // end of the last character that is in both U and L
	for i < len(s) {
		r, c, n := charAt(s, i)
		both := k.at(r) == otherKind && (c == letter || c == mark)
		if !both && k.at(r) != upper {
			break
		}
		i += n
		if both {
			caseless = i
		}
	}
	inL := func(r rune, c class) bool {
		return k.at(r) == lower || k.at(r) == otherKind && (c == letter || c == mark)
	}
	if end := runOf(s, i, inL); end > i {
		return end, -1
	}
	// U* took too much: it gives back characters up to one that is in L.
	if caseless >= 0 {
		return caseless, -1
	}
	if i > start {
		return -1, i
	}
	return -1, -1
}

// prefix returns the end of the match of [^\r\n\p{L}\p{N}]? at s[i].
func prefix(s string, i int) int {
	r, c, n := charAt(s, i)
	if c == letter || c == number || r == '\r' || r == '\n' {
		return i
	}
	return i + n
}

// contraction returns the end of the match of (?i:'s|'t|'re|'ve|'m|'ll|'d)? at s[i].
// Beyond ASCII only U+017F (ſ) equals one of these letters without regard to case.
func contraction(s string, i int) int {
	if len(s)-i < 2 || s[i] != '\'' {
		return i
	}
	lower := func(i int) byte {
		if i < len(s) {
			return s[i] | 0x20
		}
		return 0
	}
	switch a, b := lower(i+1), lower(i+2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return i + 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return i + 3
	case strings.HasPrefix(s[i+1:], "ſ"):
		return i + 1 + len("ſ")
	}
	return i
}

// matchRest returns the end of the match at s[i] of the alternatives that both
// expressions have. s[i] is not a letter, because letters always begin a word.
func matchRest(s string, i int) int {
	if end := matchNumbers(s, i); end > i {
		return end
	}
	if end := signs(s, i, func(_ rune, c class) bool { return c != space && c != letter && c != number }); end > i {
		return end
	}
	return spaces(s, i)
}
