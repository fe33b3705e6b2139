package jsonschema

import (
	"math/big"
	"regexp"
	"unicode/utf8"
)

// accepts reports whether a constant satisfies the other keywords; known is false
// where that cannot be told.
func (r *rules) accepts(v *value) (ok, known bool) {
	if v.kind&r.kinds == 0 {
		return false, true
	}
	switch v.kind {
	case integer, number:
		if r.low.at == nil && r.high.at == nil && r.multiple == nil {
			return true, true
		}
		n := v.rat()
		if n == nil {
			return false, false
		}
		if r.low.at != nil && (n.Cmp(r.low.at) < 0 || r.low.open && n.Cmp(r.low.at) == 0) ||
			r.high.at != nil && (n.Cmp(r.high.at) > 0 || r.high.open && n.Cmp(r.high.at) == 0) {
			return false, true
		}
		return r.multiple == nil || new(big.Rat).Quo(n, r.multiple).IsInt(), true
	case text:
		n := utf8.RuneCountInString(v.text)
		if n < r.minLength || r.maxLength >= 0 && n > r.maxLength {
			return false, true
		}
		for _, pattern := range r.patterns {
			re, err := regexp.Compile(pattern)
			if err != nil {
				return false, false
			}
			if !re.MatchString(v.text) {
				return false, true
			}
		}
		if r.format != "" {
			re, err := regexp.Compile("^(" + formats[r.format] + ")$")
			return err == nil && re.MatchString(v.text), err == nil
		}
	case array:
		return true, len(r.prefix) == 0 && r.items == nil && r.minItems == 0 && r.maxItems < 0
	case object:
		return true, len(r.names) == 0 && len(r.required) == 0 && r.additional == nil && !r.closed && len(r.patternNames) == 0 && r.keys == nil && r.minMembers == 0 && r.maxMembers < 0
	}
	return true, true
}
