package jsonschema

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	c "ringmaster/constraint"
)

// rules are what one alternative of a schema demands of a value, by its type.
type rules struct {
	pointer string
	kinds   kinds
	values  []*value // enum or const, with listed
	listed  bool

	low, high bound
	multiple  *big.Rat

	minLength, maxLength int // characters; -1: no bound
	patterns             []string
	format               string

	names        []string // of properties, in order
	properties   map[string][]part
	required     []string
	additional   []part
	closed       bool // no others than properties and patternNames
	open         bool // a schema said that there may be others
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

// rest are the elements of an array from one on, which have a schema.
type rest struct {
	part
	from int
}

func newRules(pointer string) *rules {
	return &rules{pointer: pointer, kinds: allKinds, maxLength: -1, maxMembers: -1, maxItems: -1, properties: map[string][]part{}, patternParts: map[string]part{}}
}

func (r *rules) clone() *rules {
	out := *r
	out.values, out.patterns, out.names, out.required = slices.Clone(r.values), slices.Clone(r.patterns), slices.Clone(r.names), slices.Clone(r.required)
	out.properties, out.patternParts = maps.Clone(r.properties), maps.Clone(r.patternParts)
	for name, parts := range out.properties {
		out.properties[name] = slices.Clone(parts)
	}
	out.additional, out.patternNames, out.keys, out.items = slices.Clone(r.additional), slices.Clone(r.patternNames), slices.Clone(r.keys), slices.Clone(r.items)
	out.prefix = make([][]part, len(r.prefix))
	for i, p := range r.prefix {
		out.prefix[i] = slices.Clone(p)
	}
	return &out
}

// refused are keywords that are not enforced.
var refused = []string{
	"not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems",
	"$dynamicRef", "$recursiveRef",
}

// apply adds the keywords of one subschema, but for those that combine schemas.
func (k *compiler) apply(r *rules, p part) {
	s := p.schema
	for _, keyword := range s.keys {
		v := s.members[keyword]
		switch keyword {
		case "type":
			k.checkTypes(v, p)
			r.kinds &= typesOf(s)
		case "enum", "const":
			k.constants(r, keyword, v, p)
		case "minimum", "exclusiveMinimum":
			if at, open, ok := k.limit(s, keyword, "minimum", p); ok && (r.low.at == nil || at.Cmp(r.low.at) > 0 || at.Cmp(r.low.at) == 0 && open) {
				r.low = bound{at, open}
			}
		case "maximum", "exclusiveMaximum":
			if at, open, ok := k.limit(s, keyword, "maximum", p); ok && (r.high.at == nil || at.Cmp(r.high.at) < 0 || at.Cmp(r.high.at) == 0 && open) {
				r.high = bound{at, open}
			}
		case "multipleOf":
			n := v.rat()
			if v.kind&(integer|number) == 0 || n == nil || n.Sign() <= 0 {
				k.fail(p.pointer, keyword, "it must be a number above 0")
			} else if r.multiple == nil || r.multiple.Cmp(n) == 0 {
				r.multiple = n
			} else {
				k.cannot(p.pointer, keyword, "two of them cannot be enforced at once")
			}
		case "minLength":
			r.minLength = max(r.minLength, k.size(v, p, keyword))
		case "maxLength":
			r.maxLength = least(r.maxLength, k.size(v, p, keyword))
		case "pattern":
			if v.kind != text {
				k.fail(p.pointer, keyword, "it must be a string")
			} else if !slices.Contains(r.patterns, v.text) {
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
				k.cannot(p.pointer, keyword, "unique items cannot be enforced")
			}
		default:
			if slices.Contains(refused, keyword) && !k.harmless(s, keyword) {
				k.cannot(p.pointer, keyword, "the keyword is not supported")
			}
		}
	}
	if r.closed || s.members["properties"] == nil && s.members["additionalProperties"] == nil && s.members["patternProperties"] == nil {
		return
	}
	if k.options.Closed && !r.open && s.members["additionalProperties"] == nil {
		r.closed = true
	}
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
	case "unevaluatedProperties", "unevaluatedItems":
		return v.kind == boolean && v.yes || v.kind == object && len(v.keys) == 0
	case "dependencies", "dependentRequired", "dependentSchemas":
		return v.kind == object && len(v.keys) == 0
	case "not":
		return v.kind == boolean && !v.yes
	}
	return false
}

// least is the smaller of two bounds, where -1 is none.
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
	for _, name := range names {
		if _, ok := typeNames[name.text]; name.kind != text || !ok {
			k.fail(p.pointer, "type", "it must be null, boolean, integer, number, string, array, object or a list of these")
		}
	}
}

// size reads a count.
func (k *compiler) size(v *value, p part, keyword string) int {
	n := v.rat()
	switch {
	case v.kind != integer || n == nil || n.Sign() < 0:
		k.fail(p.pointer, keyword, "it must be an integer of 0 or more")
		return 0
	case n.Cmp(big.NewRat(maxCount, 1)) > 0:
		if keyword[:3] == "max" {
			return maxCount // nobody waits for more
		}
		k.fail(p.pointer, keyword, "it is more than %d", maxCount)
	}
	return int(n.Num().Int64())
}

// limit reads a bound of numbers; in draft 4 exclusiveMinimum is a boolean beside
// minimum.
func (k *compiler) limit(s *value, keyword, inclusive string, p part) (at *big.Rat, open, ok bool) {
	v := s.members[keyword]
	if keyword != inclusive && v.kind == boolean {
		return nil, false, false // read with the other
	}
	if v.kind&(integer|number) == 0 || v.rat() == nil {
		k.fail(p.pointer, keyword, "it must be a number")
		return nil, false, false
	}
	if e := s.members["exclusive"+string(inclusive[0]-'a'+'A')+inclusive[1:]]; keyword == inclusive && e != nil && e.kind == boolean {
		return v.rat(), e.yes, true
	}
	return v.rat(), keyword != inclusive, true
}

// constants adds an enum or a const.
func (k *compiler) constants(r *rules, keyword string, v *value, p part) {
	list := []*value{v}
	if keyword == "enum" {
		if list = v.items; v.kind != array {
			k.fail(p.pointer, keyword, "it must be a list")
		}
	}
	if len(list) > maxEnum {
		k.cannot(p.pointer, keyword, "it has %d values; at most %d can be enforced", len(list), maxEnum)
		return
	}
	if r.listed {
		list = slices.DeleteFunc(slices.Clone(list), func(v *value) bool { return !slices.ContainsFunc(r.values, v.equal) })
	}
	r.values, r.listed = list, true
}

// format adds a format; unknown ones are annotations by the standard.
func (k *compiler) format(r *rules, v *value, p part) {
	switch _, known := formats[v.text]; {
	case v.kind != text:
		k.fail(p.pointer, "format", "it must be a string")
	case !known:
	case r.format != "" && r.format != v.text:
		k.cannot(p.pointer, "format", "two formats cannot be enforced at once")
	default:
		r.format = v.text
	}
}

// alternative is the grammar of one alternative.
func (k *compiler) alternative(r *rules) *c.Expr {
	if k.err != nil {
		return c.Never()
	}
	if r.listed {
		var out []*c.Expr
		for _, v := range r.values {
			if ok, known := r.accepts(v); !known {
				k.cannot(r.pointer, "enum", "other keywords for values of its kind cannot be enforced beside it")
			} else if ok {
				out = append(out, literal(v))
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
	add(integer|number, func() *c.Expr { return k.number(r) })
	add(text, func() *c.Expr {
		if r.minLength == 0 && r.maxLength < 0 && len(r.patterns) == 0 && r.format == "" {
			return anyText
		}
		return c.Sequence(c.Literal(`"`), k.text(r, character, anyCharacter), c.Literal(`"`))
	})
	add(array, func() *c.Expr { return k.array(r) })
	add(object, func() *c.Expr { return k.object(r) })
	return c.Choice(out...)
}

// free reports whether nothing is demanded.
func (r *rules) free() bool {
	return r.kinds == allKinds && r.low.at == nil && r.high.at == nil && r.multiple == nil && r.minLength == 0 && r.maxLength < 0 && r.patterns == nil && r.format == "" &&
		len(r.names) == 0 && len(r.required) == 0 && r.additional == nil && !r.closed && len(r.patternNames) == 0 && r.keys == nil && r.minMembers == 0 && r.maxMembers < 0 &&
		len(r.prefix) == 0 && r.items == nil && r.minItems == 0 && r.maxItems < 0
}

// number is the grammar of numbers.
func (k *compiler) number(r *rules) *c.Expr {
	if r.multiple != nil {
		n := r.multiple
		switch {
		case r.kinds&number == 0 && n.IsInt() && n.Cmp(big.NewRat(1, 1)) == 0: // every integer
		case !n.IsInt() || n.Cmp(big.NewRat(maxModulus, 1)) > 0 || r.low.at != nil || r.high.at != nil:
			k.cannot(r.pointer, "multipleOf", "only multiples of an integer up to %d without bounds can be enforced", maxModulus)
		default:
			return multiples(n.Num().Int64())
		}
	}
	if r.kinds&number == 0 {
		return integers(r.low, r.high)
	}
	return numbers(r.low, r.high)
}

// text is the grammar of a string without its quotes, with characters in a given
// form.
func (k *compiler) text(r *rules, char c.Characters, any *c.Expr) *c.Expr {
	patterns := r.patterns
	if len(patterns)+min(1, len(r.format)) > 1 {
		k.cannot(r.pointer, "pattern", "several patterns, or a pattern and a format, cannot be enforced at once")
	}
	if len(patterns) == 0 && r.format == "" {
		return c.Repeat(any, r.minLength, r.maxLength)
	}
	if r.minLength > 0 || r.maxLength >= 0 {
		k.cannot(r.pointer, "minLength", "a length cannot be enforced beside a pattern or a format; write it into the pattern")
	}
	pattern, whole, keyword := formats[r.format], true, "format"
	if len(patterns) > 0 {
		pattern, whole, keyword = patterns[0], false, "pattern"
	}
	e, err := c.Regexp(pattern, whole, char)
	if err != nil {
		k.cannot(r.pointer, keyword, "%v", err)
		return c.Repeat(any, r.minLength, r.maxLength)
	}
	return e
}

// pointerTo is the place of a keyword's member.
func pointerTo(p part, keyword string, name any) string {
	return fmt.Sprintf("%s/%s/%v", p.pointer, keyword, name)
}
