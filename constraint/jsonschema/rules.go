package jsonschema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	c "ringmaster/constraint"
)

// rules are what one alternative of a schema demands of a value, by its type.
type rules struct {
	at     *place
	kinds  kinds
	values []*value // enum or const, if listed; shared, so callers must not modify it
	listed bool

	low, high bound
	multiple  *decimal

	minLength, maxLength int // characters; -1: no bound
	patterns             []string
	format               string

	names        []string // of properties, in order
	properties   map[string][]part
	required     []string
	demanded     map[string]bool // the required names
	additional   []part
	closed       bool // no members other than properties and patternNames
	open         bool // a schema allowed other members explicitly
	describes    bool // a schema has properties or patternProperties
	partial      bool // more members or elements than those here may count as evaluated
	patternNames []string
	patternParts map[string]part
	keys         []part // propertyNames
	minMembers   int
	maxMembers   int
	prefix       [][]part
	items        []rest
	minItems     int
	maxItems     int
}

// rest is the elements of an array from a start on, which have a schema.
type rest struct {
	part
	from int
}

func newRules(at *place) *rules {
	return &rules{at: at, kinds: allKinds, maxLength: -1, maxMembers: -1, maxItems: -1, properties: map[string][]part{}, patternParts: map[string]part{}, demanded: map[string]bool{}}
}

func (r *rules) clone() *rules {
	out := *r
	out.patterns, out.names, out.required = slices.Clone(r.patterns), slices.Clone(r.names), slices.Clone(r.required)
	out.properties, out.patternParts, out.demanded = maps.Clone(r.properties), maps.Clone(r.patternParts), maps.Clone(r.demanded)
	for name, parts := range out.properties {
		out.properties[name] = slices.Clip(parts) // clipped, so that an append copies the list
	}
	out.additional, out.patternNames, out.keys, out.items = slices.Clone(r.additional), slices.Clone(r.patternNames), slices.Clone(r.keys), slices.Clone(r.items)
	out.prefix = make([][]part, len(r.prefix))
	for i, p := range r.prefix {
		out.prefix[i] = slices.Clip(p)
	}
	return &out
}

// weight returns roughly what clone costs.
func (r *rules) weight() int {
	return 16 + 2*len(r.names) + 2*len(r.required) + len(r.patterns) + 2*len(r.patternNames) + len(r.additional) + len(r.keys) + len(r.items) + len(r.prefix)
}

// refused are keywords that are not enforced.
var refused = []string{
	"if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas", "dependencies",
	"$dynamicRef", "$recursiveRef",
}

// apply adds the keywords of one subschema, except those that combine schemas.
func (k *compiler) apply(r *rules, p part) {
	s := p.schema
	for _, keyword := range s.keys {
		v := s.members[keyword]
		if !k.spend(1) {
			return
		}
		switch keyword {
		case "type":
			k.checkTypes(v, p)
			r.kinds &= typesOf(s)
		case "enum", "const":
			k.constants(r, keyword, k.valuesOf(keyword, v, p), p)
		case "minimum", "exclusiveMinimum":
			if b, ok := k.limit(s, keyword, "minimum", p); ok && (!r.low.set || b.at.cmp(r.low.at) > 0 || b.at.cmp(r.low.at) == 0 && b.open) {
				r.low = b
			}
		case "maximum", "exclusiveMaximum":
			if b, ok := k.limit(s, keyword, "maximum", p); ok && (!r.high.set || b.at.cmp(r.high.at) < 0 || b.at.cmp(r.high.at) == 0 && b.open) {
				r.high = b
			}
		case "multipleOf":
			n, ok := v.decimal()
			if v.kind&(integer|number) == 0 || ok && n.sign() <= 0 {
				k.fail(p.at, keyword, "it must be a number above 0")
			} else if !ok {
				k.cannot(p.at, keyword, "its exponent is too large")
			} else if r.multiple == nil || r.multiple.cmp(n) == 0 {
				r.multiple = &n
			} else {
				k.cannot(p.at, keyword, "two of them cannot be enforced at once")
			}
		case "minLength":
			r.minLength = max(r.minLength, k.size(v, p, keyword))
		case "maxLength":
			r.maxLength = least(r.maxLength, k.size(v, p, keyword))
		case "pattern":
			if v.kind != text {
				k.fail(p.at, keyword, "it must be a string")
			} else if k.spend(len(r.patterns)) && !slices.Contains(r.patterns, v.text) {
				r.patterns = append(r.patterns, v.text)
			}
		case "format":
			k.format(r, v, p)
		case "properties", "required", "additionalProperties", "patternProperties", "propertyNames":
			k.members(r, keyword, v, p)
		case "minProperties":
			r.minMembers = max(r.minMembers, k.size(v, p, keyword))
		case "maxProperties":
			r.maxMembers = least(r.maxMembers, k.size(v, p, keyword))
		case "prefixItems", "items", "additionalItems":
			k.elements(r, keyword, v, p)
		case "minItems":
			r.minItems = max(r.minItems, k.size(v, p, keyword))
		case "maxItems":
			r.maxItems = least(r.maxItems, k.size(v, p, keyword))
		case "uniqueItems":
			if v.kind != boolean || v.yes {
				k.cannot(p.at, keyword, "unique items cannot be enforced")
			}
		case "not":
			k.no(r, v, p)
		default:
			if slices.Contains(refused, keyword) {
				r.partial = true
			}
			if slices.Contains(refused, keyword) && !k.harmless(s, keyword) {
				k.cannot(p.at, keyword, "the keyword is not supported")
			}
		}
	}
	r.describes = r.describes || s.members["properties"] != nil || s.members["patternProperties"] != nil
}

// no adds a schema that a value must not satisfy: one that says nothing but types.
func (k *compiler) no(r *rules, v *value, p part) {
	r.partial = true
	types := allKinds // of what is excluded
	switch {
	case v.kind == boolean && !v.yes:
		return
	case v.kind == boolean || v.kind == object && len(v.keys) == 0:
	case v.kind == object && len(v.keys) == 1 && v.members["type"] != nil:
		k.checkTypes(v.members["type"], p.sub(v, "not"))
		types = typesOf(v)
	default:
		k.cannot(p.at, "not", "only types can be excluded")
		return
	}
	if types&integer != 0 && types&number == 0 {
		k.cannot(p.at, "not", "integers alone cannot be excluded")
		return
	}
	r.kinds &^= types
}

// harmless reports whether a keyword that is not supported demands nothing.
func (k *compiler) harmless(s *value, keyword string) bool {
	v := s.members[keyword]
	switch keyword {
	case "then", "else":
		return s.members["if"] == nil
	case "if":
		return s.members["then"] == nil && s.members["else"] == nil
	case "minContains", "maxContains":
		return s.members["contains"] == nil
	case "dependencies", "dependentRequired", "dependentSchemas":
		return v.kind == object && len(v.keys) == 0
	}
	return false
}

// least returns the smaller of two bounds, where -1 means none.
func least(a, b int) int {
	if a < 0 {
		return b
	}
	return min(a, b)
}

func (k *compiler) checkTypes(v *value, p part) {
	names := []*value{v}
	if v.kind == array {
		names = v.items
	}
	if len(names) > len(typeNames) {
		k.fail(p.at, "type", "it lists a type twice")
		return
	}
	for _, name := range names {
		if _, ok := typeNames[name.text]; name.kind != text || !ok {
			k.fail(p.at, "type", "it must be null, boolean, integer, number, string, array, object or a list of these")
		}
	}
}

// size reads a count.
func (k *compiler) size(v *value, p part, keyword string) int {
	n, ok := v.decimal()
	switch {
	case v.kind != integer || !ok || n.sign() < 0:
		k.fail(p.at, keyword, "it must be an integer of 0 or more")
		return 0
	case n.cmp(mostCounted) > 0:
		if keyword[:3] == "max" {
			return maxCount // no caller needs more
		}
		k.cannot(p.at, keyword, "it is more than %d", maxCount)
		return 0
	}
	count, _ := strconv.Atoi(n.text())
	return count
}

var mostCounted, _ = parseDecimal(strconv.Itoa(maxCount))

// limit reads a bound of numbers; in draft 4 exclusiveMinimum is a boolean beside
// minimum.
func (k *compiler) limit(s *value, keyword, inclusive string, p part) (b bound, ok bool) {
	v := s.members[keyword]
	if keyword != inclusive && v.kind == boolean {
		return bound{}, false // read together with the other
	}
	if v.kind&(integer|number) == 0 {
		k.fail(p.at, keyword, "it must be a number")
		return bound{}, false
	}
	n, ok := v.decimal()
	if !ok {
		k.cannot(p.at, keyword, "its exponent is too large")
		return bound{}, false
	}
	b = bound{set: true, at: n, open: keyword != inclusive}
	if e := s.members["exclusive"+string(inclusive[0]-'a'+'A')+inclusive[1:]]; keyword == inclusive && e != nil && e.kind == boolean {
		b.open = e.yes
	}
	outside := n.sign() < 0 // every number that an answer may have is within the bound
	if inclusive == "maximum" {
		outside = n.sign() > 0
	}
	switch {
	case n.whole() > maxDigits && outside:
		b.at, b.open = decimal{n.negative, "1", maxDigits + 1}, true
	case n.whole() > maxDigits:
		k.cannot(p.at, keyword, "numbers have at most %d digits before the point", maxDigits)
		return bound{}, false
	case n.fraction() > maxFraction:
		k.cannot(p.at, keyword, "numbers have at most %d digits behind the point", maxFraction)
		return bound{}, false
	}
	return b, true
}

// format adds a format; the standard makes unknown ones annotations.
func (k *compiler) format(r *rules, v *value, p part) {
	switch _, known := formats[v.text]; {
	case v.kind != text:
		k.fail(p.at, "format", "it must be a string")
	case !known:
	case r.format != "" && r.format != v.text:
		k.cannot(p.at, "format", "two formats cannot be enforced at once")
	default:
		r.format = v.text
	}
}

// alternative returns the grammar of one alternative.
func (k *compiler) alternative(r *rules) *c.Expr {
	if k.err != nil {
		return c.Never()
	}
	if r.listed {
		var out []*c.Expr
		for _, v := range r.values {
			if !k.spend(1) {
				break
			}
			if ok, known := k.accepts(r, v); !known {
				k.cannot(r.at, "enum", "other keywords for values of its kind cannot be enforced beside it")
			} else if ok {
				k.spend(v.weight())
				out = append(out, k.built(literal(v)))
			}
		}
		return c.Choice(out...)
	}
	if r.free() {
		return anyValue
	}
	var out []*c.Expr
	add := func(kind kinds, e func() *c.Expr) {
		if r.kinds&kind != 0 {
			out = append(out, e())
		}
	}
	add(null, func() *c.Expr { return c.Literal("null") })
	add(boolean, func() *c.Expr { return c.Choice(c.Literal("true"), c.Literal("false")) })
	add(integer|number, func() *c.Expr { return k.built(k.number(r)) })
	add(text, func() *c.Expr {
		if r.minLength == 0 && r.maxLength < 0 && len(r.patterns) == 0 && r.format == "" {
			return anyText
		}
		return c.Sequence(c.Literal(`"`), k.text(r, "JSON", character, anyCharacter), c.Literal(`"`))
	})
	add(array, func() *c.Expr { return k.array(r) })
	add(object, func() *c.Expr { return k.object(r) })
	return c.Choice(out...)
}

// free reports whether the rules demand nothing.
func (r *rules) free() bool {
	return r.kinds == allKinds && !r.low.set && !r.high.set && r.multiple == nil && r.minLength == 0 && r.maxLength < 0 && r.patterns == nil && r.format == "" &&
		len(r.names) == 0 && len(r.required) == 0 && r.additional == nil && !r.closed && !r.describes && len(r.patternNames) == 0 && r.keys == nil && r.minMembers == 0 && r.maxMembers < 0 &&
		len(r.prefix) == 0 && r.items == nil && r.minItems == 0 && r.maxItems < 0
}

// number returns the grammar of numbers.
func (k *compiler) number(r *rules) *c.Expr {
	if r.multiple != nil {
		if r.kinds&number != 0 || r.multiple.cmp(one) != 0 { // otherwise every integer
			key := fmt.Sprint(r.kinds&number, r.multiple, r.low, r.high)
			e := k.multiple[key]
			if e == nil {
				if e = k.multipleOf(r); e != nil && !e.IsNever() {
					e = c.Shared("a multiple", e)
				}
				k.multiple[key] = e
			}
			if e != nil {
				return e
			}
			k.cannot(r.at, "multipleOf", "only multiples of a number up to %d, without its decimal point, can be enforced", maxModulus)
		}
	}
	if r.kinds&number == 0 {
		return integers(r.low, r.high)
	}
	return numbers(r.low, r.high)
}

var one, _ = parseDecimal("1")
