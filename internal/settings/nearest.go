package settings

import (
	"fmt"

	"github.com/agnivade/levenshtein"
)

// mostCompared is the longest name that is compared with others, because names from a
// file may be as long as the file, and comparing takes the product of two lengths.
const mostCompared = 64

// Nearest proposes the nearest known name for an unknown one, in a form such as %q; it
// returns "" if none is near.
func Nearest(name, form string, known []string) string {
	if len(name) > mostCompared {
		return ""
	}
	best, least := "", (len(name)+3)/2
	for _, k := range known {
		d := levenshtein.ComputeDistance(name, k)
		if d < least || d == least && best != "" && closer(name, k, best) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean "+form+"?", best)
}

// closer reports whether a name is rather k than other, which is as near: the beginnings
// decide, because people mistype them less often, and then the alphabet.
func closer(name, k, other string) bool {
	common := func(s string) int {
		n := 0
		for n < min(len(s), len(name)) && s[n] == name[n] {
			n++
		}
		return n
	}
	if a, b := common(k), common(other); a != b {
		return a > b
	}
	return k < other
}
