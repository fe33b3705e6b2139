package tokenizer

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"
)

// The words of the expressions of glm4 and kimi-k2 as their authors wrote them, but with
// the case variants of letters written out, because this engine does not fold U+017F.
const (
	contractions = `'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])`
	upperK2      = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`
	lowerK2      = `[\p{Ll}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`
	restOfBoth   = `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	cjkOfBoth    = `[一-龥ࠀ-一가-퟿]+`
)

// lettersLLM are the letters of deepseek-llm's second expression.
const lettersLLM = `
	0041-005A 0061-007A 00B5 00C0-00D6 00D8-00F6 00F8-01BA 01BC-01BF 01C4-0293 0295-02AF 0370-0373 0376-0377 037B-037D
	037F 0386 0388-038A 038C 038E-03A1 03A3-03F5 03F7-0481 048A-052F 0531-0556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA
	1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D
	1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113
	2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE
	2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F
	104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943`

// classLLM is lettersLLM as a class of an expression.
func classLLM() string {
	var b strings.Builder
	for _, r := range strings.Fields(lettersLLM) {
		for i, hex := range strings.Split(r, "-") {
			n, err := strconv.ParseUint(hex, 16, 32)
			if err != nil {
				panic(err)
			}
			b.WriteString([]string{"", "-"}[i])
			b.WriteRune(rune(n))
		}
	}
	return "[" + b.String() + "]"
}

// expressions has those of each pre-tokenizer, as in the models' tokenizer.json, for a
// backtracking engine. Each splits the pieces that the previous one left.
var expressions = map[string][]*regexp2.Regexp{
	"deepseek-v3": compile(`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`,
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"+
			`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`+
			`| ?[\p{P}\p{S}]+[\r\n]*`+
			`|\s*[\r\n]+`+
			`|\s+(?!\S)`+
			`|\s+`),
	"deepseek-llm": compile(`[\r\n]`, `\s?`+classLLM()+`+`,
		`\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, cjkOfBoth, `\p{N}`),
	"deepseek-coder": compile(`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, cjkOfBoth, `\p{N}`),
	"glm4":           compile(contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+` + restOfBoth),
	"kimi-k2": compile(`[\p{Han}]+` +
		`|[^\r\n\p{L}\p{N}]?` + upperK2 + `*` + lowerK2 + `+(?:` + contractions + `)?` +
		`|[^\r\n\p{L}\p{N}]?` + upperK2 + `+` + lowerK2 + `*(?:` + contractions + `)?` + restOfBoth),
}

func compile(list ...string) (compiled []*regexp2.Regexp) {
	for _, e := range list {
		compiled = append(compiled, regexp2.MustCompile(e, regexp2.None))
	}
	return compiled
}

// oracle splits like the splitter of that name, slowly.
func oracle(t testing.TB, pre, s string) []string {
	pieces := [][]rune{[]rune(s)}
	for _, re := range expressions[pre] {
		var cut [][]rune
		for _, piece := range pieces {
			done := 0
			m, err := re.FindRunesMatch(piece)
			for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
				if done < m.Index {
					cut = append(cut, piece[done:m.Index])
				}
				done = m.Index + m.Length
				cut = append(cut, piece[m.Index:done])
			}
			require.NoError(t, err)
			if done < len(piece) {
				cut = append(cut, piece[done:])
			}
		}
		pieces = cut
	}
	var out []string
	for _, p := range pieces {
		out = append(out, string(p))
	}
	return out
}

func pieces(pre, s string) []string {
	var out []string
	splitters[pre](s, func(w string) {
		if w != "" {
			out = append(out, w)
		}
	})
	return out
}

// goClass is the class according to package unicode.
func goClass(r rune) class {
	switch {
	case unicode.Is(unicode.White_Space, r):
		return space
	case unicode.Is(unicode.L, r):
		return letter
	case unicode.Is(unicode.M, r):
		return mark
	case unicode.Is(unicode.N, r):
		return number
	case unicode.Is(unicode.P, r):
		return punct
	case unicode.Is(unicode.S, r):
		return symbol
	}
	return other
}

// goKind is the kind according to package unicode.
func goKind(r rune) kind {
	switch {
	case unicode.Is(unicode.Han, r):
		return han
	case unicode.Is(unicode.Lu, r) || unicode.Is(unicode.Lt, r):
		return upper
	case unicode.Is(unicode.Ll, r):
		return lower
	}
	return otherKind
}

// comparable reports whether the engine, which uses package unicode's tables,
// classifies all of s as we do.
func comparable(s string) bool {
	for _, r := range s {
		if goClass(r) != classOf(r) || goKind(r) != kinds().at(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Our table is newer than package unicode's: it may know characters that Go
// does not, but hardly any that the two classify differently.
func TestClassesAgreeWithPackageUnicode(t *testing.T) {
	var moved []rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.Is(unicode.Cn, r) && !unicode.Is(unicode.Cs, r) && (goClass(r) != classOf(r) || goKind(r) != kinds().at(r)) {
			moved = append(moved, r)
		}
	}
	require.Equal(t, []rune{'ʕ'}, moved, "lower case up to Unicode 15, without case since then: %+q", moved)
	require.Equal(t, "17.0", unicodeVersion)
	for r, want := range map[rune]class{
		'a': letter, ' ': space, '\u0085': space, '\ufeff': other, '\u200b': other, '\u0301': mark,
		'½': number, '٣': number, '+': symbol, '-': punct, '｜': symbol, '。': punct, '語': letter,
		'\U00016D40': letter, // assigned in Unicode 16
		'\U000323B0': letter, // assigned in Unicode 17
		'\u0378':     other,  // not assigned
	} {
		require.Equal(t, want, classOf(r), "%+q", r)
	}
}

// TestSplit has the cases in which the pre-tokenizers differ from each other. A text
// that is not valid UTF-8 has no oracle.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		pre, text string
		want      []string
	}{
		{"deepseek-v3", "", nil},
		{"deepseek-v3", "Hello, world!", []string{"Hello", ",", " world", "!"}},
		{"deepseek-v3", "don't I'M", []string{"don", "'t", " I", "'M"}},
		{"deepseek-v3", "example.com/a_b", []string{"example", ".com", "/a", "_b"}},
		{"deepseek-v3", "1234567", []string{"123", "456", "7"}},
		{"deepseek-v3", "x 12.5", []string{"x", " ", "12", ".", "5"}},
		// A run of spaces leaves its last one to the word that follows ...
		{"deepseek-v3", "a   b", []string{"a", "  ", " b"}},
		{"deepseek-v3", "a  !", []string{"a", " ", " !"}},
		// ... also a tab or a no-break space, but these only to letters.
		{"deepseek-v3", "a\t\tb", []string{"a", "\t", "\tb"}},
		{"deepseek-v3", "a\u00a0\u00a0b", []string{"a", "\u00a0", "\u00a0b"}},
		{"deepseek-v3", "a\t!", []string{"a", "\t", "!"}},
		// At the end of a piece there is no following word: numbers and Han end
		// the piece before them.
		{"deepseek-v3", "a   1", []string{"a", "   ", "1"}},
		{"deepseek-v3", "a   漢", []string{"a", "   ", "漢"}},
		// Line ends take the preceding white space and stop at the last one.
		{"deepseek-v3", "a \n \n  b", []string{"a", " \n \n", " ", " b"}},
		{"deepseek-v3", "!\r\n\n x", []string{"!\r\n\n", " x"}},
		// Kana marks and signs are not letters.
		{"deepseek-v3", "カ・ナ゛", []string{"カ", "・", "ナ", "゛"}},
		// Controls and invalid bytes begin no match; one of them goes with a word.
		{"deepseek-v3", "\x00\x01\x02 a", []string{"\x00\x01\x02", " a"}},
		{"deepseek-v3", "\x00\x01a", []string{"\x00", "\x01a"}},
		{"deepseek-v3", "\xff\xfe!", []string{"\xff\xfe", "!"}},
		{"deepseek-v3", "e\u0301e", []string{"e\u0301e"}},
		{"deepseek-v3", "1\u0301", []string{"1", "\u0301"}},
		{"deepseek-llm", "Hello, wörld 12", []string{"Hello", ",", " w", "ö", "rld", " ", "1", "2"}},
		{"deepseek-llm", "a \n\n  b", []string{"a", " ", "\n", "\n", " ", " b"}},
		{"deepseek-llm", "中文，好。", []string{"中文", "，", "好", "。"}},
		{"deepseek-llm", "a　b　", []string{"a", "　", "b", "　"}},
		{"deepseek-llm", "\x00 \t", []string{"\x00", " \t"}},
		{"deepseek-llm", "ა Ა", []string{"ა", " ", "Ა"}}, // cut by expression 5, whose set they are in
		{"deepseek-coder", "Hello, wörld 12", []string{"Hello", ",", " wörld", " ", "1", "2"}},
		{"deepseek-coder", "x+=1;\r\n", []string{"x", "+=", "1", ";", "\r", "\n"}},
		{"deepseek-coder", "aあ", []string{"a", "あ"}},
		{"glm4", "don't I'VE x'ſo", []string{"don", "'t", " I", "'VE", " x", "'ſ", "o"}},
		{"glm4", "1234 x", []string{"123", "4", " x"}},
		{"glm4", "e\u0301a", []string{"e", "\u0301a"}},
		{"glm4", " !!\n\n a  b", []string{" !!\n\n", " a", " ", " b"}},
		{"glm4", "中文abc", []string{"中文abc"}},
		{"kimi-k2", "HelloWorld HTTPServer", []string{"Hello", "World", " HTTPServer"}},
		{"kimi-k2", "don't I'VEx", []string{"don't", " I'VE", "x"}},
		{"kimi-k2", "中文abc々あ", []string{"中文", "abc", "々", "あ"}},
		{"kimi-k2", "e\u0301A", []string{"e\u0301", "A"}},
		{"kimi-k2", "AªB", []string{"Aª", "B"}},
		{"kimi-k2", "\u0301ABC", []string{"\u0301", "ABC"}},
		{"kimi-k2", "1〇x!⺀", []string{"1〇", "x", "!⺀"}},
		{"kimi-k2", " 12345", []string{" ", "123", "45"}},
	} {
		require.Equal(t, c.want, pieces(c.pre, c.text), "%s %+q", c.pre, c.text)
		if utf8.ValidString(c.text) {
			require.Equal(t, c.want, oracle(t, c.pre, c.text), "%s %+q (the oracle)", c.pre, c.text)
		}
	}
}

// Names of one splitter are spellings of one pre-tokenizer, so each splitter has
// an oracle.
func TestEverySplitterHasAnOracle(t *testing.T) {
	alike := map[string]string{"joyai-llm": "deepseek-v3", "hunyuan-dense": "deepseek-v3", "chatglm-bpe": "glm4"}
	for _, pre := range Pretokenizers() {
		same := alike[pre]
		if same == "" {
			same = pre
		}
		require.NotEmpty(t, expressions[same], pre)
		for _, s := range samples(t) {
			require.Equal(t, pieces(same, s.Text), pieces(pre, s.Text), pre)
		}
	}
}

// alphabet has several characters of every kind that the expressions
// distinguish.
var alphabet = []rune("aZßǅ語あー・゛゠龥龦09٣½Ⅷ'._-+<｜。 \t\r\n\v\u00a0\u0085\u3000\u2028\u0301\u0e31\u200d\ufeff\x00\u007f\u0378😀🏽" +
	"'sSſtTrReEvVmMlLdDABCabc  \n～！‘，!~ªʰاაᲐꟂ々〇⺀𖿰豈가ힰࠀ߿ก①１𐐀𝐀𝐚𠀀\U00013000")

func TestSplitEqualsTheExpressions(t *testing.T) {
	for pre := range expressions {
		t.Run(pre, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 9))
			for range 20000 {
				var b strings.Builder
				for range 1 + r.IntN(14) {
					b.WriteRune(alphabet[r.IntN(len(alphabet))])
				}
				require.Equal(t, oracle(t, pre, b.String()), pieces(pre, b.String()), "%+q", b.String())
			}
			for range 5000 { // any characters of a few neighbouring blocks
				var b strings.Builder
				first := rune(r.IntN(0x30000))
				for range 1 + r.IntN(20) {
					if c := first + r.Int32N(200); utf8.ValidRune(c) {
						b.WriteRune(c)
					}
				}
				if s := b.String(); s != "" && comparable(s) {
					require.Equal(t, oracle(t, pre, s), pieces(pre, s), "%+q", s)
				}
			}
			for _, s := range samples(t) {
				if comparable(s.Text) {
					require.Equal(t, oracle(t, pre, s.Text), pieces(pre, s.Text), "%+q", s.Text)
				}
			}
		})
	}
}

// An invalid byte is a character of no class: with the text around it, it splits
// like a control character, which is one too.
func TestSplitInvalidBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for pre := range expressions {
		for range 3000 {
			var b strings.Builder
			for range 1 + r.IntN(14) {
				if c := alphabet[r.IntN(len(alphabet))]; r.IntN(3) > 0 && c != 0x7F {
					b.WriteRune(c)
				} else {
					b.WriteRune(0x7F)
				}
			}
			invalid := strings.ReplaceAll(b.String(), "\x7f", "\xff")
			want := pieces(pre, b.String())
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "\x7f", "\xff")
			}
			require.Equal(t, want, pieces(pre, invalid), "%s %+q", pre, invalid)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for pre := range expressions {
			got := pieces(pre, s)
			require.Equal(t, s, strings.Join(got, ""), pre)
			if s != "" && len(s) < 1000 && comparable(s) {
				require.Equal(t, oracle(t, pre, s), got, pre)
			}
		}
	})
}
