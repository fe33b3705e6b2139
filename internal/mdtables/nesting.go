package mdtables

import (
	"regexp"
	"strings"
)

// The bounds of nested blocks.
const (
	// MaxNesting bounds the marks of quotes and lists in one line: the parser takes time
	// by lines times depth, and what displays the text by depth squared.
	MaxNesting = 32
	// MaxLooks bounds how often the parser looks at the rest of a line. It does so up to
	// twice for each open block: an empty line in 200 lists nested by their indents costs
	// 50 KB of memory. Normal texts of 64 KiB need a quarter of it.
	MaxLooks = 1 << 20
)

// Deep reports whether a line begins with more marks of quotes and lists than MaxNesting.
func Deep(source string) bool {
	for line := range strings.Lines(source) {
		n := 0
		for i := 0; i < len(line) && strings.IndexByte(" \t>*+-0123456789.)", line[i]) >= 0; i++ {
			if strings.IndexByte(">*+-.)", line[i]) >= 0 {
				n++
			}
		}
		if n > MaxNesting && !rule.MatchString(line) {
			return true
		}
	}
	return false
}

// rule matches a line of one kind of mark, such as a thematic break.
var rule = regexp.MustCompile(`^\s*(\*[*\s]*|-[-\s]*|\+[+\s]*)$`)
