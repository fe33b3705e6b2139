package tokenizer

//go:generate sh -c "node ../../tests/tokenizer/classes.mjs >classtable.new && mv classtable.new classtable.go"

import "unicode/utf8"

// class is the property of a character that the expressions of split.go test.
// No character is in two of them.
type class uint8

const (
	other  class = iota // controls, formats, unassigned, invalid bytes
	space               // \s: the property White_Space, with \r and \n
	letter              // \p{L}
	mark                // \p{M}
	number              // \p{N}
	punct               // \p{P}
	symbol              // \p{S}
)

// classRange is a run of code points of one class.
type classRange struct {
	first, last rune
	class       class
}

// The table has one page per 256 code points; equal pages are stored once. It
// replaces package unicode, so that the ids of a text do not depend on the Go
// version.
const pageBits = 8

type classPage [1 << pageBits]class

var classPages = func() (pages [(utf8.MaxRune + 1) >> pageBits]*classPage) {
	known := map[classPage]*classPage{}
	ranges := classRanges[:]
	for p := range pages {
		var page classPage
		for i := range page {
			r := rune(p<<pageBits | i)
			for len(ranges) > 0 && ranges[0].last < r {
				ranges = ranges[1:]
			}
			if len(ranges) > 0 && ranges[0].first <= r {
				page[i] = ranges[0].class
			}
		}
		if known[page] == nil {
			known[page] = &page
		}
		pages[p] = known[page]
	}
	return pages
}()

// classOf is the class of a code point, at most utf8.MaxRune.
func classOf(r rune) class { return classPages[r>>pageBits][r&(1<<pageBits-1)] }

// charAt is the class and the length in bytes of the character at s[i], and the
// character itself. An invalid byte is a character of class other.
func charAt(s string, i int) (r rune, c class, n int) {
	if b := s[i]; b < utf8.RuneSelf {
		return rune(b), classPages[0][b], 1
	}
	r, n = utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && n == 1 {
		return r, other, 1
	}
	return r, classOf(r), n
}
