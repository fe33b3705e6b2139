package tokenizer

//go:generate sh -c "node ../../tests/tokenizer/classes.mjs >classtable.new && mv classtable.new classtable.go"
//go:generate sh -c "node ../../tests/tokenizer/classes.mjs kinds >kindtable.new && mv kindtable.new kindtable.go"

import (
	"sync"
	"unicode/utf8"
)

// class is the property of a character that the expressions test.
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

// kind distinguishes letters and marks of class's table for the expression of kimi-k2.
// Han characters have their own kind whatever their class.
type kind uint8

const (
	otherKind kind = iota // letters without case and marks (Lm, Lo, M), by class, and all that is no letter
	upper                 // Lu, Lt
	lower                 // Ll
	han                   // the script Han
)

// run is a range of code points of one class or kind.
type run[V ~uint8] struct {
	first, last rune
	value       V
}

// table has one page per 256 code points; equal pages are stored once. It
// replaces package unicode, so that the ids of a text do not depend on the Go
// version.
type table[V ~uint8] [(utf8.MaxRune + 1) >> pageBits]*[1 << pageBits]V

const pageBits = 8

// newTable makes the table of runs that are in ascending order; code points in none of
// them have the value 0.
func newTable[V ~uint8](runs []run[V]) *table[V] {
	var t table[V]
	known := map[[1 << pageBits]V]*[1 << pageBits]V{}
	for p := range t {
		var page [1 << pageBits]V
		for i := range page {
			r := rune(p<<pageBits | i)
			for len(runs) > 0 && runs[0].last < r {
				runs = runs[1:]
			}
			if len(runs) > 0 && runs[0].first <= r {
				page[i] = runs[0].value
			}
		}
		if known[page] == nil {
			known[page] = &page
		}
		t[p] = known[page]
	}
	return &t
}

// at returns the value of a code point, at most utf8.MaxRune.
func (t *table[V]) at(r rune) V { return t[r>>pageBits][r&(1<<pageBits-1)] }

var (
	classes = newTable(classRanges[:])
	// kinds is made when a vocabulary first needs it.
	kinds = sync.OnceValue(func() *table[kind] { return newTable(kindRanges[:]) })
)

// classOf returns the class of a code point, at most utf8.MaxRune.
func classOf(r rune) class { return classes.at(r) }

// charAt returns the class and the length in bytes of the character at s[i], and the
// character itself. An invalid byte is a character of class other.
func charAt(s string, i int) (r rune, c class, n int) {
	if b := s[i]; b < utf8.RuneSelf {
		return rune(b), classes[0][b], 1
	}
	r, n = utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && n == 1 {
		return r, other, 1
	}
	return r, classOf(r), n
}
