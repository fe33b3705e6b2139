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
		if d := levenshtein.ComputeDistance(name, k); d < least || d == least && best != "" && k < best {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean "+form+"?", best)
}
