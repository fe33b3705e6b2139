// Package texts makes random texts that try a tokenizer: many scripts, white space
// of every kind, digits, marks, emoji, markers and what is nearly one.
package texts

import (
	"math/rand/v2"
	"strings"
	"unicode"
)

// scripts are the ranges of random characters: first, last.
var scripts = [][2]rune{
	{'a', 'z'}, {'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'!', '/'}, {':', '`'}, {'{', '~'}, // ASCII, letters twice as often
	{0x00, 0x1F}, {0x7F, 0x9F}, // controls, with U+0085
	{0xA0, 0xBF}, {0xC0, 0x24F}, {0x2B0, 0x36F}, // Latin, modifiers, combining marks
	{0x370, 0x3FF}, {0x400, 0x52F}, {0x530, 0x58F}, {0x590, 0x5FF}, {0x600, 0x6FF}, {0x700, 0x74F},
	{0x900, 0x97F}, {0x980, 0x9FF}, {0xA80, 0xBFF}, {0xC00, 0xDFF}, {0xE00, 0xEFF}, {0xF00, 0xFFF},
	{0x1000, 0x10FF}, {0x1100, 0x11FF}, {0x1200, 0x139F}, {0x13A0, 0x167F}, {0x1680, 0x16FF}, {0x1780, 0x18AF},
	{0x1E00, 0x1FFF}, {0x2000, 0x206F}, {0x2070, 0x20FF}, {0x2100, 0x218F}, {0x2190, 0x23FF}, {0x2460, 0x27BF},
	{0x2E80, 0x2FDF}, {0x3000, 0x303F}, {0x3040, 0x30FF}, {0x3100, 0x33FF}, {0x3400, 0x3410},
	{0x4E00, 0x9FFF}, {0x4E00, 0x9FFF}, {0x9FA0, 0x9FB0}, {0xA000, 0xA6FF}, {0xAC00, 0xD7FF}, {0xE000, 0xE010},
	{0xF900, 0xFAFF}, {0xFB00, 0xFDFF}, {0xFE00, 0xFE4F}, {0xFEFE, 0xFF00}, {0xFF00, 0xFFEF}, {0xFFF0, 0xFFFF},
	{0x10000, 0x101FF}, {0x10400, 0x104FF}, {0x10A00, 0x10A60}, {0x1D100, 0x1D1FF}, {0x1D400, 0x1D7FF},
	{0x1F000, 0x1F2FF}, {0x1F300, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x20100}, {0xE0000, 0xE01EF}, {0x10FF00, 0x10FFFF},
}

// whole are pieces that are used unchanged: whitespace of every kind, digits, control
// tokens and near misses of them, emoji sequences, words.
var whole = []string{
	" ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", " \n ", "\n ", " \t\r\n  ",
	"\u00a0", "\u3000", "\u2028", "\u2029", "\u0085", "\u202f", "\u205f", "\u1680", "\u2003", "\ufeff", "\u200b", "\u180e",
	"\u200d", "\u200c", "\u200e", "\u00ad", "\ufe0f", "\u0301", "\u0000", "\u001c", "\u001f", "\ufffe", "\ufffd", "\U0001fffe",
	"1", "12", "123", "1234567", "٣٤٥", "१२३४", "½", "Ⅷ", "²", "①②③④", "𝟙𝟚", "〇", "一二三",
	"<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<|EOT|>",
	"<｜place▁holder▁no▁7｜>", "<｜place▁holder▁no▁77｜>", "<｜place▁holder▁no▁", "<｜User", "User｜>", "<|User|>", "<｜tool▁sep｜>",
	"<think>", "</think>", "｜DSML｜", "｜", "▁",
	"👩‍👩‍👧", "🇫🇷", "👍🏽", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️", "the", " the", "don't", "I'M", "'s", "we'll", ".com", "_x", "#include", "http://",
	"カタカナ・ー゛", "ひらがな", "漢字かな交じり", "中文，标点。", "한국어", "naïve", "e\u0301", "ǅ", "ß", "İ", "ﬁ",
}

// Random returns up to about 60 characters. It leaves out characters that are unassigned
// in this Go's Unicode (15), because the tables of other tokenizers differ in age.
func Random(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(12) {
		if r.IntN(3) == 0 {
			b.WriteString(whole[r.IntN(len(whole))])
			continue
		}
		s := scripts[r.IntN(len(scripts))]
		for range 1 + r.IntN(8) {
			c := s[0] + r.Int32N(s[1]-s[0]+1)
			if c >= 0xD800 && c < 0xE000 || unicode.Is(unicode.Cn, c) {
				continue
			}
			b.WriteRune(c)
			if r.IntN(6) == 0 {
				b.WriteByte(' ')
			}
		}
	}
	return b.String()
}
