package tokenizer

import (
	"sync"
	"unicode/utf8"
)

// The pre-tokenizers of DeepSeek LLM and V2 ("deepseek-llm") and of DeepSeek
// Coder ("deepseek-coder"): successive expressions. Each splits the pieces left by the
// previous one, matches and the text between them alike.
//
//	deepseek-llm                          deepseek-coder
//	1  [\r\n]                             1  [\r\n]
//	2  \s?[LETTERS]+                      2  \s?\p{L}+
//	3  \s?[!-/:-~！-／：-～‘-‟　-。]+         3  \s?\p{P}+
//	4  \s+$
//	5  [一-龥ࠀ-一가-퟿]+                    4  [一-龥ࠀ-一가-퟿]+
//	6  \p{N}                              5  \p{N}
//
// LETTERS are those of llmRanges. The set of expression 3 has the ASCII letters
// too ("naïve" is one match of expression 2 and three pieces after 3). Files for
// llama.cpp have \p{N}+ as the last expression of deepseek-llm; the original
// splits numbers one by one, and the two differ only for a vocabulary with
// tokens of several digits, which V2's is not.

// llmRanges are the letters that expression 2 of deepseek-llm lists: those of scripts
// with case, as Unicode had them when that tokenizer was made.
var llmRanges = [...]run[uint8]{
	{0x0041, 0x005A, 1}, {0x0061, 0x007A, 1}, {0x00B5, 0x00B5, 1}, {0x00C0, 0x00D6, 1}, {0x00D8, 0x00F6, 1}, {0x00F8, 0x01BA, 1},
	{0x01BC, 0x01BF, 1}, {0x01C4, 0x0293, 1}, {0x0295, 0x02AF, 1}, {0x0370, 0x0373, 1}, {0x0376, 0x0377, 1}, {0x037B, 0x037D, 1},
	{0x037F, 0x037F, 1}, {0x0386, 0x0386, 1}, {0x0388, 0x038A, 1}, {0x038C, 0x038C, 1}, {0x038E, 0x03A1, 1}, {0x03A3, 0x03F5, 1},
	{0x03F7, 0x0481, 1}, {0x048A, 0x052F, 1}, {0x0531, 0x0556, 1}, {0x10A0, 0x10C5, 1}, {0x13A0, 0x13F5, 1}, {0x13F8, 0x13FD, 1},
	{0x1C90, 0x1CBA, 1}, {0x1CBD, 0x1CBF, 1}, {0x1D00, 0x1D2B, 1}, {0x1D6B, 0x1D77, 1}, {0x1D79, 0x1D9A, 1}, {0x1E00, 0x1F15, 1},
	{0x1F18, 0x1F1D, 1}, {0x1F20, 0x1F45, 1}, {0x1F48, 0x1F4D, 1}, {0x1F50, 0x1F57, 1}, {0x1F59, 0x1F59, 1}, {0x1F5B, 0x1F5B, 1},
	{0x1F5D, 0x1F5D, 1}, {0x1F5F, 0x1F7D, 1}, {0x1F80, 0x1FB4, 1}, {0x1FB6, 0x1FBC, 1}, {0x1FBE, 0x1FBE, 1}, {0x1FC2, 0x1FC4, 1},
	{0x1FC6, 0x1FCC, 1}, {0x1FD0, 0x1FD3, 1}, {0x1FD6, 0x1FDB, 1}, {0x1FE0, 0x1FEC, 1}, {0x1FF2, 0x1FF4, 1}, {0x1FF6, 0x1FFC, 1},
	{0x2102, 0x2102, 1}, {0x2107, 0x2107, 1}, {0x210A, 0x2113, 1}, {0x2115, 0x2115, 1}, {0x2119, 0x211D, 1}, {0x2124, 0x2124, 1},
	{0x2126, 0x2126, 1}, {0x2128, 0x2128, 1}, {0x212A, 0x212D, 1}, {0x212F, 0x2134, 1}, {0x2139, 0x2139, 1}, {0x213C, 0x213F, 1},
	{0x2145, 0x2149, 1}, {0x214E, 0x214E, 1}, {0x2183, 0x2184, 1}, {0x2C00, 0x2C7B, 1}, {0x2C7E, 0x2CE4, 1}, {0x2CEB, 0x2CEE, 1},
	{0x2CF2, 0x2CF3, 1}, {0xA640, 0xA66D, 1}, {0xA680, 0xA69B, 1}, {0xA722, 0xA76F, 1}, {0xA771, 0xA787, 1}, {0xA78B, 0xA78E, 1},
	{0xAB70, 0xABBF, 1}, {0xFB00, 0xFB06, 1}, {0xFB13, 0xFB17, 1}, {0xFF21, 0xFF3A, 1}, {0xFF41, 0xFF5A, 1}, {0x10400, 0x1044F, 1},
	{0x104B0, 0x104D3, 1}, {0x104D8, 0x104FB, 1}, {0x10C80, 0x10CB2, 1}, {0x10CC0, 0x10CF2, 1}, {0x118A0, 0x118DF, 1}, {0x1E900, 0x1E943, 1},
}

// llmLetters is made when a vocabulary first needs it.
var llmLetters = sync.OnceValue(func() *table[uint8] { return newTable(llmRanges[:]) })

// splitLLM is the splitter of "deepseek-llm".
func splitLLM(s string, word func(string)) {
	letters := llmLetters()
	letter := func(s string, i int) int {
		return spaced(s, i, func(r rune, _ class) bool { return letters.at(r) != 0 })
	}
	isolate(s, matchLineEnd, func(s string) {
		isolate(s, letter, func(s string) {
			isolate(s, matchLLMSigns, func(s string) {
				isolateTrailing(s, func(s string) {
					isolate(s, matchCJK, func(s string) { isolate(s, matchNumber, word) })
				})
			})
		})
	})
}

// splitCoder is the splitter of "deepseek-coder".
func splitCoder(s string, word func(string)) {
	isolate(s, matchLineEnd, func(s string) {
		isolate(s, matchCoderLetters, func(s string) {
			isolate(s, matchCoderSigns, func(s string) {
				isolate(s, matchCJK, func(s string) { isolate(s, matchNumber, word) })
			})
		})
	})
}

// isolate calls next for each match of an expression in s and for each text between
// matches. match returns the end of the match that begins at s[i], or i.
func isolate(s string, match func(s string, i int) int, next func(string)) {
	rest := 0 // s[rest:i] has matched nothing so far
	for i := 0; i < len(s); {
		end := match(s, i)
		if end == i {
			_, _, n := charAt(s, i)
			i += n
			continue
		}
		if rest < i {
			next(s[rest:i])
		}
		next(s[i:end])
		i, rest = end, end
	}
	if rest < len(s) {
		next(s[rest:])
	}
}

// isolateTrailing is isolate for \s+$, found from the end, because trying it at each
// character of a run of white space would take time in proportion to the square of the
// run.
func isolateTrailing(s string, next func(string)) {
	end := len(s)
	for end > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:end])
		if r == utf8.RuneError || classOf(r) != space {
			break
		}
		end -= n
	}
	if end > 0 {
		next(s[:end])
	}
	if end < len(s) {
		next(s[end:])
	}
}

// spaced returns the end of the match of \s?X+ at s[i], where X is the set of characters
// that in accepts. White space that is itself in X begins a match even without another X.
func spaced(s string, i int, in func(r rune, c class) bool) int {
	start := i
	if _, c, n := charAt(s, i); c == space {
		start += n
	}
	end := runOf(s, start, in)
	if end == start {
		return runOf(s, i, in)
	}
	return end
}

// runOf returns the end of the run of X+ that begins at s[i].
func runOf(s string, i int, in func(r rune, c class) bool) int {
	for i < len(s) {
		r, c, n := charAt(s, i)
		if !in(r, c) {
			break
		}
		i += n
	}
	return i
}

func matchLineEnd(s string, i int) int {
	if s[i] == '\r' || s[i] == '\n' {
		return i + 1
	}
	return i
}

func matchLLMSigns(s string, i int) int {
	return spaced(s, i, func(r rune, _ class) bool {
		switch {
		case r < utf8.RuneSelf:
			return r >= '!' && r <= '/' || r >= ':' && r <= '~'
		case r < 0x3000:
			return r >= 0x2018 && r <= 0x201F
		}
		return r <= 0x3002 || r >= 0xFF01 && r <= 0xFF0F || r >= 0xFF1A && r <= 0xFF5E
	})
}

func matchCoderLetters(s string, i int) int {
	return spaced(s, i, func(_ rune, c class) bool { return c == letter })
}

func matchCoderSigns(s string, i int) int {
	return spaced(s, i, func(_ rune, c class) bool { return c == punct })
}

// matchCJK matches a run of the set of expression 5: its three ranges are together U+0800
// to U+9FA5, and U+AC00 to U+D7FF.
func matchCJK(s string, i int) int {
	return runOf(s, i, func(r rune, _ class) bool {
		return r >= 0x0800 && r <= 0x9FA5 || r >= 0xAC00 && r <= 0xD7FF
	})
}

// matchNumbers matches a run of one to three numbers.
func matchNumbers(s string, i int) int {
	for range 3 {
		i = matchNumber(s, i)
	}
	return i
}

// matchNumber matches one number; i may be the end of s.
func matchNumber(s string, i int) int {
	if i == len(s) {
		return i
	}
	if _, c, n := charAt(s, i); c == number {
		return i + n
	}
	return i
}
