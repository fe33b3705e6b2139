package jsonschema

import (
	"math/big"
	"unicode/utf8"
)

// accepts reports whether a constant satisfies the other keywords; known is false if that
// cannot be decided.
func (k *compiler) accepts(r *rules, v *value) (ok, known bool) {
	if v.kind&r.kinds == 0 {
		return false, true
	}
	switch v.kind {
	case integer, number:
		if !r.low.set && !r.high.set && r.multiple == nil {
			return true, true
		}
		n, ok := v.decimal()
		if !ok {
			return false, false
		}
		if !r.low.below(n) || !r.high.above(n) {
			return false, true
		}
		if r.multiple == nil || n.sign() == 0 {
			return true, true
		}
		if !n.small() || !r.multiple.small() || !k.spend(64) {
			return false, false
		}
		return new(big.Rat).Quo(n.rat(), r.multiple.rat()).IsInt(), true
	case text:
		n := utf8.RuneCountInString(v.text)
		if n < r.minLength || r.maxLength >= 0 && n > r.maxLength {
			return false, true
		}
		for _, pattern := range r.patterns {
			if ok, known := k.match(pattern, v.text); !ok || !known {
				return false, known
			}
		}
		if r.format != "" {
			return k.spend(1+len(v.text)) && formats[r.format].matches(v.text), true
		}
	case array:
		return true, len(r.prefix) == 0 && r.items == nil && r.minItems == 0 && r.maxItems < 0
	case object:
		return true, len(r.names) == 0 && len(r.required) == 0 && r.additional == nil && !r.closed && !(k.options.Closed && r.describes) && len(r.patternNames) == 0 && r.keys == nil && r.minMembers == 0 && r.maxMembers < 0
	}
	return true, true
}
