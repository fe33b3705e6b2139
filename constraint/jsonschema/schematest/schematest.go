// Package schematest writes JSON schemas that cost as much as possible, for tests that
// bound the cost of compiling one.
package schematest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Hostile returns a schema of at most about size bytes, the same for the same seed.
func Hostile(seed uint64, size int) string {
	h := &hostile{rand.New(rand.NewPCG(seed, 5)), 0}
	h.left = size >> h.r.IntN(8)
	return h.schema(0)
}

// hostile writes schemas that repeat what costs most, over all keywords, nested and by
// references.
type hostile struct {
	r    *rand.Rand
	left int // bytes
}

// some returns how often something of a size may be repeated.
func (h *hostile) some(size int) int {
	most := max(1, h.left/(size+1))
	if h.r.IntN(3) == 0 {
		most = min(most, 1+h.r.IntN(20))
	}
	n := 1 + h.r.IntN(most)
	h.left -= n * (size + 1)
	return n
}

func (h *hostile) text(n int) string {
	letters := []string{"a", "b", "é", "漢", `\"`, `\\`, `\u0000`, "-", "0", "~1", "/"}
	if h.r.IntN(3) == 0 {
		letters = letters[:1]
	}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(letters[h.r.IntN(len(letters))])
	}
	return `"` + b.String() + `"`
}

func (h *hostile) number() string {
	switch h.r.IntN(7) {
	case 0:
		return fmt.Sprintf("1e%d", h.r.IntN(20000))
	case 1:
		return fmt.Sprintf("-%d.5e-%d", 1+h.r.IntN(9), h.r.IntN(20000))
	case 2:
		return "9" + strings.Repeat("8", min(h.some(1), 200_000))
	case 3:
		return "0." + strings.Repeat("0", min(h.some(1), 200)) + "1"
	case 4:
		return "1e999999999999"
	}
	return fmt.Sprint(h.r.IntN(3000) - 1000)
}

// list returns n items that a function writes, with commas.
func (h *hostile) list(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		s := item(i)
		b.WriteString(s)
	}
	return b.String()
}

func (h *hostile) value(depth int) string {
	switch h.r.IntN(6) {
	case 0:
		return h.text(h.some(1))
	case 1:
		if depth < 20 {
			return "[" + h.list(min(h.some(8), 4), func(int) string { return h.value(depth + 4) }) + "]"
		}
	case 2:
		if depth < 20 {
			return `{"a":` + h.value(depth+4) + `,"b":1}`
		}
	case 3:
		return fmt.Sprintf(`"%d"`, h.r.IntN(5000))
	}
	return h.number()
}

func (h *hostile) pattern() string {
	part := []string{"(a|b)*", "[a-z]{1,1000}", `\\pL`, "(a|ab|b){1,9}", ".", "(?i)k", "[^a]", "(x{30}){30}", "^a", `\\d+`, "(.|..){1,99}", `(?i)[B-\\x{1e900}]`, `[\\pL\\pN]`, `\\p{Greek}|\\p{Han}|`}[h.r.IntN(14)]
	return `"` + strings.Repeat(part, min(h.some(len(part)), 6000/len(part))) + `"`
}

// schema returns a subschema; it writes some of the nested ones once and repeats them.
func (h *hostile) schema(depth int) string {
	if depth > 60 || h.left < 100 {
		return []string{"true", `{"$ref":"#"}`, `{"type":"string"}`, `{"const":1}`}[h.r.IntN(4)]
	}
	ref := func() string { return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, h.r.IntN(12)) }
	same := func() func(int) string { // the same each time, except for a number
		s := []string{`{"$ref":"#/$defs/d1"}`, `{"type":"object","required":["k"],"properties":{"k":{"const":%d}}}`, `{"const":%d}`, `{"enum":[%d,"x"]}`, `{}`, `{"minLength":%d}`, `{"multipleOf":%d}`,
			`{"pattern":"^a%d"}`, `{"properties":{"p%d":{"type":"string"}}}`, `{"required":["p%d"]}`, `{"maximum":1e%d}`, `{"type":["string","null"],"format":"ipv6"}`}[h.r.IntN(12)]
		if h.r.IntN(4) == 0 {
			s = h.schema(depth + 20)
		}
		h.left += len(s)
		return func(i int) string {
			h.left -= len(s) + 1
			if h.left < 0 {
				return "true"
			}
			return strings.ReplaceAll(s, "%d", fmt.Sprint(i))
		}
	}
	many := func() string { item := same(); return h.list(h.some(40), item) }
	var out []string
	add := func(keyword, value string) { out = append(out, fmt.Sprintf("%q:%s", keyword, value)) }
	for range 1 + h.r.IntN(3) {
		switch h.r.IntN(20) {
		case 0:
			add("enum", "["+h.list(min(h.some(10), 3000), func(i int) string {
				if h.r.IntN(2) == 0 {
					return fmt.Sprintf("1e%d", 9999-i)
				}
				return h.value(0)
			})+"]")
		case 1:
			add("const", h.value(0))
		case 2:
			add("oneOf", "["+many()+"]")
		case 3:
			add("anyOf", "["+many()+"]")
		case 4:
			add("allOf", "["+many()+"]")
		case 5:
			add("properties", "{"+h.list(h.some(30), func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, []string{"true", ref()}[h.r.IntN(2)]) })+"}")
		case 6:
			add("properties", "{"+h.text(h.some(1))+":"+h.schema(depth+1)+"}")
		case 7:
			add("patternProperties", "{"+h.list(min(h.some(20), 17), func(i int) string { return h.pattern() + ":true" })+"}")
		case 8:
			add("required", "["+h.list(h.some(8), func(i int) string { return fmt.Sprintf(`"p%d"`, i) })+"]")
		case 9:
			add("propertyNames", h.schema(depth+1))
		case 10:
			add("additionalProperties", []string{"false", h.schema(depth + 1)}[h.r.IntN(2)])
		case 11:
			add("prefixItems", "["+many()+"]")
		case 12:
			add("items", h.schema(depth+1))
		case 13:
			add("pattern", h.pattern())
		case 14:
			add("minimum", h.number())
			add("maximum", h.number())
		case 15:
			add("multipleOf", fmt.Sprint(1+h.r.IntN(1100)))
			add("type", `"integer"`)
		case 16:
			add("minProperties", fmt.Sprint(h.r.IntN(100)))
			add("maxProperties", fmt.Sprint(100+h.r.IntN(10000)))
		case 17:
			add("minItems", fmt.Sprint(h.r.IntN(1000000)))
			add("maxLength", h.number())
		case 18:
			add("$ref", fmt.Sprintf(`"#/$defs/d%d"`, h.r.IntN(12)))
		case 19:
			add("x"+fmt.Sprint(depth), h.value(0))
		}
	}
	if depth == 0 {
		share := h.left / 12
		defs := h.list(12, func(i int) string {
			h.left = share
			return fmt.Sprintf(`"d%d":%s`, i, h.schema(1))
		})
		add("$defs", "{"+defs+"}")
	}
	return "{" + strings.Join(out, ",") + "}"
}
