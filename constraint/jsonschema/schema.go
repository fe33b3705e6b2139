// Package jsonschema makes grammars of JSON schemas (draft 2020-12 and draft 7), for
// answers that are JSON. Members of an object come in the order of the schema's
// properties, and then those that the schema does not name. What cannot be enforced
// is an error with the keyword and its place, and never ignored unless Options ask
// for it; docs/constraints.md has the table.
package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	c "ringmaster/constraint"
)

// Options change what a schema means.
type Options struct {
	// Closed lets objects have no members but those that their schema names, where
	// it says nothing about others. By the standard they may have any.
	Closed bool
	// Lenient leaves out what cannot be enforced.
	Lenient bool
}

// Limits of a schema.
const (
	maxSchemas      = 4096 // subschemas, each as often as it is used and for each alternative
	maxAlternatives = 256  // of one subschema
	maxEnum         = 2048
	maxInline       = 64 // references within each other that are no rules
	maxCount        = 1 << 24
)

// Error says what in a schema cannot be enforced.
type Error struct {
	Pointer string // JSON pointer of the subschema; "" is the whole
	Keyword string
	Message string
}

// Error names the place.
func (e *Error) Error() string {
	at := e.Pointer
	if e.Keyword != "" {
		at += "/" + e.Keyword
	}
	return fmt.Sprintf("JSON schema, #%s: %s", at, e.Message)
}

// Compile makes the grammar of the JSON that a schema allows. Its errors are of type
// *Error.
func Compile(schema []byte, o Options) (*c.Expr, error) {
	root, err := decode(schema)
	if err != nil {
		return nil, &Error{Message: "it is no JSON: " + err.Error()}
	}
	k := &compiler{options: o, root: root, rules: map[*value]*c.Rule{}}
	if draft := root.members["$schema"]; draft != nil && strings.Contains(draft.text, "json-schema.org/draft-0") {
		k.alone = true
	}
	e := k.schema(root, "")
	if k.err == nil && e.IsNever() {
		k.fail("", "", "nothing can satisfy it")
	}
	if k.err != nil {
		return nil, k.err
	}
	return e, nil
}

// Any is any JSON value.
func Any() *c.Expr { return anyValue }

// Object is any JSON object.
func Object() *c.Expr { return anyObject }

// notText is any value but a string.
var anyValue, anyObject, notText = func() (any, object, rest *c.Expr) {
	r := &c.Rule{Name: "a JSON value"}
	v := c.Use(r)
	member := c.Sequence(anyText, colon, v)
	list := func(open string, item *c.Expr, end string) *c.Expr {
		return c.Sequence(c.Literal(open), space, c.Optional(c.Sequence(item, c.Repeat(c.Sequence(comma, item), 0, -1))), space, c.Literal(end))
	}
	o := c.Shared("a JSON object", list("{", member, "}"))
	rest = c.Shared("a JSON value that is no string", c.Choice(c.Literal("null"), c.Literal("true"), c.Literal("false"), anyNumber, list("[", v, "]"), o))
	r.Body = c.Choice(anyText, rest)
	return v, o, rest
}()

// compiler translates one schema.
type compiler struct {
	options Options
	root    *value
	rules   map[*value]*c.Rule // of the subschemas that are referred to
	alone   bool               // nothing counts beside $ref, as in draft 7 and before
	count   int
	err     error
}

func (k *compiler) fail(pointer, keyword, format string, args ...any) {
	if k.err == nil {
		k.err = &Error{pointer, keyword, fmt.Sprintf(format, args...)}
	}
}

// cannot is fail for what the standard allows but this package does not enforce.
func (k *compiler) cannot(pointer, keyword, format string, args ...any) {
	if !k.options.Lenient {
		k.fail(pointer, keyword, format, args...)
	}
}

// part is a subschema and where it stands.
type part struct {
	schema  *value
	pointer string
}

// schema is the grammar of one subschema.
func (k *compiler) schema(s *value, pointer string) *c.Expr { return k.all([]part{{s, pointer}}) }

// all is the grammar of what several subschemas allow at the same time.
func (k *compiler) all(parts []part) *c.Expr {
	if k.count++; k.count > maxSchemas {
		k.fail(parts[0].pointer, "", "the schema is too large: it has more than %d subschemas", maxSchemas)
	}
	if k.err != nil {
		return c.Never()
	}
	if len(parts) == 1 {
		if target, at, ok := k.reference(parts[0]); ok { // a rule, which may contain itself
			return k.rule(target, at)
		}
		if items := k.alternatives(parts[0]); items != nil {
			out := make([]*c.Expr, 0, len(items))
			for i, item := range items {
				if e := k.schema(item, fmt.Sprintf("%s/anyOf/%d", parts[0].pointer, i)); !e.IsNever() {
					out = append(out, e)
				}
			}
			return c.Choice(out...)
		}
	}
	list := []*rules{newRules(parts[0].pointer)}
	for _, p := range parts {
		list = k.merge(list, p, 0)
	}
	k.count += len(list) - 1
	out := make([]*c.Expr, 0, len(list))
	for _, r := range list {
		if e := k.alternative(r); !e.IsNever() {
			out = append(out, e)
		}
	}
	return c.Choice(out...)
}

// rule is the grammar of a subschema that is referred to.
func (k *compiler) rule(target *value, at string) *c.Expr {
	r, ok := k.rules[target]
	if !ok {
		r = &c.Rule{Name: "the schema at #" + at}
		k.rules[target] = r
		r.Body = k.schema(target, at)
		if r.Body.IsNever() && k.err == nil {
			return c.Never()
		}
	}
	return c.Use(r)
}

// merge adds what a subschema demands to each of a list of alternatives. depth
// counts references within each other.
func (k *compiler) merge(list []*rules, p part, depth int) []*rules {
	s := p.schema
	switch {
	case k.err != nil:
		return nil
	case s.kind == boolean && s.yes:
		return list
	case s.kind == boolean:
		return nil
	case s.kind != object:
		k.fail(p.pointer, "", "a schema is an object, true or false")
		return nil
	case depth > maxInline:
		k.fail(p.pointer, "", "it refers to itself before it says anything, or is nested too deep")
		return nil
	}
	ref := s.members["$ref"]
	if ref == nil || !k.alone {
		for _, r := range list {
			k.apply(r, p)
		}
	}
	if ref != nil {
		if target, at := k.resolve(ref, p.pointer); target != nil {
			list = k.merge(list, part{target, at}, depth+1)
		}
		if k.alone {
			return list
		}
	}
	if all := k.list(p, "allOf"); all != nil {
		for i, item := range all.items {
			list = k.merge(list, part{item, fmt.Sprintf("%s/allOf/%d", p.pointer, i)}, depth+1)
		}
	}
	if k.count += len(list) - 1; k.count > maxSchemas {
		k.fail(p.pointer, "", "the schema is too large: its alternatives multiply to more than %d", maxSchemas)
		return nil
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		any := k.list(p, keyword)
		if any == nil {
			continue
		}
		if keyword == "oneOf" {
			k.disjoint(any, p)
		}
		var out []*rules
		for i, item := range any.items {
			copies := make([]*rules, len(list))
			for j, r := range list {
				copies[j] = r.clone()
				k.count += len(r.names) / 64 // it takes time
			}
			if k.count > maxSchemas {
				k.fail(p.pointer, keyword, "the schema is too large: its alternatives multiply to more than %d", maxSchemas)
				return nil
			}
			out = append(out, k.merge(copies, part{item, fmt.Sprintf("%s/%s/%d", p.pointer, keyword, i)}, depth+1)...)
			if len(out) > maxAlternatives {
				k.fail(p.pointer, keyword, "there are more than %d alternatives", maxAlternatives)
				return nil
			}
		}
		list = out
	}
	return list
}

// list reads a keyword whose value is a list of schemas.
func (k *compiler) list(p part, keyword string) *value {
	v := p.schema.members[keyword]
	if v != nil && (v.kind != array || len(v.items) == 0) {
		k.fail(p.pointer, keyword, "it must be a list of schemas")
		return nil
	}
	return v
}

// disjoint checks that no value satisfies two of the schemas of a oneOf, as far as
// their types, constants and required constant members tell.
func (k *compiler) disjoint(list *value, p part) {
	for i, a := range list.items {
		for j := range i {
			if !k.differ(a, list.items[j], 0) {
				k.cannot(p.pointer, "oneOf", "schemas %d and %d may both be satisfied by one value, as far as their types, constants and required constant members tell; use anyOf", j, i)
				return
			}
		}
	}
}

func (k *compiler) differ(a, b *value, depth int) bool {
	a, b = k.target(a, 0), k.target(b, 0)
	if a == nil || b == nil || a.kind != object || b.kind != object || depth > 8 {
		return false
	}
	if typesOf(a)&typesOf(b) == 0 {
		return true
	}
	x, y := constants(a), constants(b)
	if x != nil && y != nil {
		return !slices.ContainsFunc(x, func(v *value) bool { return slices.ContainsFunc(y, v.equal) })
	}
	if typesOf(a) != object || typesOf(b) != object {
		return false
	}
	for _, name := range requiredOf(a) {
		p, q := a.members["properties"], b.members["properties"]
		if p != nil && q != nil && slices.Contains(requiredOf(b), name) && p.members[name] != nil && q.members[name] != nil &&
			k.differ(p.members[name], q.members[name], depth+1) {
			return true
		}
	}
	return false
}

// target follows references.
func (k *compiler) target(s *value, depth int) *value {
	if s.kind == object && s.members["$ref"] != nil && depth < maxInline {
		if to, _ := k.resolve(s.members["$ref"], ""); to != nil {
			return k.target(to, depth+1)
		}
		return nil
	}
	return s
}

// constants are the values of an enum or const, nil without.
func constants(s *value) []*value {
	if v := s.members["const"]; v != nil {
		return []*value{v}
	}
	if v := s.members["enum"]; v != nil && v.kind == array {
		return v.items
	}
	return nil
}

func requiredOf(s *value) (names []string) {
	if v := s.members["required"]; v != nil && v.kind == array {
		for _, item := range v.items {
			names = append(names, item.text)
		}
	}
	return names
}

var typeNames = map[string]kinds{"null": null, "boolean": boolean, "integer": integer, "number": integer | number, "string": text, "array": array, "object": object}

// typesOf are the types that a schema allows by its keyword "type".
func typesOf(s *value) kinds {
	v := s.members["type"]
	switch {
	case v == nil && constants(s) != nil:
		var out kinds
		for _, item := range constants(s) {
			out |= item.kind
		}
		return out
	case v == nil:
		return allKinds
	case v.kind == text:
		return typeNames[v.text]
	}
	var out kinds
	for _, item := range v.items {
		out |= typeNames[item.text]
	}
	return out
}
