// Package jsonschema makes grammars of JSON schemas (draft 2020-12 and draft 7), for
// answers that are JSON: Compile returns an expression for constraint.Compile (see the
// example). The members of an object come in the order of the schema's properties,
// followed by those that the schema does not name. A keyword that cannot be enforced is
// an error with its place, and is ignored only if Options ask for it; docs/constraints.md
// has the table.
package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	c "ringmaster/constraint"
)

// Options change what a schema means.
type Options struct {
	// Closed forbids members that a schema does not name, if it says nothing about
	// others. By the standard an object may have any.
	Closed bool
	// Lenient leaves out what cannot be enforced.
	Lenient bool
	// Budget bounds the cost of the grammar; nil: only the limits below do.
	Budget *c.Budget
}

// Limits of a schema.
const (
	maxSchemas      = 4096 // subschemas, each counted as often as it is used and for each alternative
	maxAlternatives = 256  // of one subschema
	maxEnum         = 2048
	maxInline       = 64 // nested references that are not rules
	maxCount        = 1 << 24
	maxName         = 4096 // length of a member's name in bytes
)

// Error says what in a schema cannot be enforced.
type Error struct {
	Pointer string // JSON pointer of the subschema; "" is the whole
	Keyword string
	Message string
	cause   error // the budget's error; nil: the schema itself is at fault
}

// Unwrap returns the budget's error if the budget was used up.
func (e *Error) Unwrap() error { return e.cause }

// Error names the place.
func (e *Error) Error() string {
	at := e.Pointer
	if e.Keyword != "" {
		at += "/" + e.Keyword
	}
	return fmt.Sprintf("JSON schema, #%s: %s", at, e.Message)
}

// Compile returns the grammar of the JSON that a schema allows. Its errors are of type
// *Error; they wrap the budget's error if that was used up.
func Compile(schema []byte, o Options) (*c.Expr, error) {
	k, err := newCompiler(schema, o)
	if err != nil {
		return nil, err
	}
	e := k.schema(part{schema: k.root})
	if k.err == nil && e.IsNever() {
		k.fail(nil, "", "%v", c.ErrNothing)
	}
	if k.err != nil {
		return nil, k.err
	}
	return e, nil
}

// Any matches any JSON value.
func Any() *c.Expr { return anyValue }

// Object matches any JSON object.
func Object() *c.Expr { return anyObject }

// notText matches any value but a string.
var anyValue, anyObject, notText = func() (any, object, rest *c.Expr) {
	r := &c.Rule{Name: "a JSON value"}
	v := c.Use(r)
	member := c.Sequence(anyText, colon, v)
	list := func(open string, item *c.Expr, end string) *c.Expr {
		return c.Sequence(c.Literal(open), space, c.Optional(c.Sequence(item, c.Repeat(c.Sequence(comma, item), 0, -1))), space, c.Literal(end))
	}
	o := c.Shared("a JSON object", list("{", member, "}"))
	rest = c.Shared("a JSON value that is not a string", c.Choice(c.Literal("null"), c.Literal("true"), c.Literal("false"), anyNumber, list("[", v, "]"), o))
	r.Body = c.Choice(anyText, rest)
	return v, o, rest
}()

// compiler translates one schema.
type compiler struct {
	options  Options
	root     *value
	rules    map[*value]*c.Rule // rules of the subschemas that are the targets of references
	targets  map[string]*value  // of references
	facts    map[*value]*facts
	patterns map[string]*pattern
	regulars map[string]*c.Expr
	multiple map[string]*c.Expr
	alone    bool // $ref overrides everything beside it, as in draft 7 and before
	count    int
	err      *Error
}

// newCompiler reads a schema. Its error is of type *Error.
func newCompiler(schema []byte, o Options) (*compiler, error) {
	root, err := decode(schema, o.Budget)
	if b := o.Budget.Err(); b != nil {
		return nil, &Error{Message: b.Error(), cause: b}
	}
	if err != nil {
		return nil, &Error{Message: "it is not JSON: " + err.Error()}
	}
	k := &compiler{options: o, root: root, rules: map[*value]*c.Rule{}, targets: map[string]*value{}, facts: map[*value]*facts{},
		patterns: map[string]*pattern{}, regulars: map[string]*c.Expr{}, multiple: map[string]*c.Expr{}}
	draft := root.members["$schema"]
	k.alone = draft != nil && strings.Contains(draft.text, "json-schema.org/draft-0")
	return k, nil
}

func (k *compiler) fail(at *place, keyword, format string, args ...any) {
	if k.err == nil {
		k.err = &Error{Pointer: at.String(), Keyword: keyword, Message: fmt.Sprintf(format, args...)}
	}
}

// cannot is fail for what the standard allows but this package does not enforce.
func (k *compiler) cannot(at *place, keyword, format string, args ...any) {
	if !k.options.Lenient {
		k.fail(at, keyword, format, args...)
	}
}

// spend takes n units of the budget; false: the compilation has failed, for this or
// another reason.
func (k *compiler) spend(n int) bool {
	if k.err == nil && !k.options.Budget.Spend(n) {
		err := k.options.Budget.Err()
		k.err = &Error{Message: err.Error(), cause: err}
	}
	return k.err == nil
}

// built spends the size of an expression that was built without counting its parts.
func (k *compiler) built(e *c.Expr) *c.Expr {
	k.spend(e.Size())
	return e
}

// schema returns the grammar of one subschema.
func (k *compiler) schema(p part) *c.Expr { return k.all([]part{p}) }

// all returns the grammar of what several subschemas allow at the same time.
func (k *compiler) all(parts []part) *c.Expr {
	if k.count++; k.count > maxSchemas {
		k.fail(parts[0].at, "", "the schema is too large: it has more than %d subschemas", maxSchemas)
	}
	if !k.spend(4 + len(parts)) {
		return c.Never()
	}
	if len(parts) == 1 {
		if target, at, ok := k.reference(parts[0]); ok { // a rule, because it may contain itself
			return k.rule(target, at)
		}
		if items := k.alternatives(parts[0]); items != nil {
			out := make([]*c.Expr, 0, len(items))
			for i, item := range items {
				if e := k.schema(parts[0].item(item, "anyOf", i)); !e.IsNever() {
					out = append(out, e)
				}
			}
			return c.Choice(out...)
		}
	}
	list := []*rules{newRules(parts[0].at)}
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

// rule returns the grammar of the target of a reference.
func (k *compiler) rule(target *value, at *place) *c.Expr {
	r, ok := k.rules[target]
	if !ok {
		r = &c.Rule{Name: "the schema at #" + at.String()}
		k.rules[target] = r
		r.Body = k.schema(part{target, at})
		if r.Body.IsNever() && k.err == nil {
			return c.Never()
		}
	}
	return c.Use(r)
}

// merge adds what a subschema demands to each of a list of alternatives. depth counts
// nested references.
func (k *compiler) merge(list []*rules, p part, depth int) []*rules {
	s := p.schema
	switch {
	case !k.spend(2 + len(list)):
		return nil
	case s.kind == boolean && s.yes:
		return list
	case s.kind == boolean:
		return nil
	case s.kind != object:
		k.fail(p.at, "", "a schema is an object, true or false")
		return nil
	case depth > maxInline:
		k.fail(p.at, "", "it refers to itself before it says anything, or is nested too deep")
		return nil
	}
	ref := s.members["$ref"]
	fresh := !slices.ContainsFunc(list, (*rules).hasElements)
	if ref == nil || !k.alone {
		for _, r := range list {
			k.apply(r, p)
		}
	}
	if ref != nil {
		if target, at := k.resolve(ref, p.at); target != nil {
			list = k.merge(list, part{target, at}, depth+1)
		}
		if k.alone {
			return list
		}
	}
	if all := k.list(p, "allOf"); all != nil {
		for i, item := range all.items {
			list = k.merge(list, p.item(item, "allOf", i), depth+1)
		}
	}
	if k.count += len(list) - 1; k.count > maxSchemas {
		k.fail(p.at, "", "the schema is too large: its alternatives multiply to more than %d", maxSchemas)
		return nil
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		any := k.list(p, keyword)
		if any == nil {
			continue
		}
		if values, ok := k.listed(any, keyword, p); ok { // an enum with a description of each value
			for _, r := range list {
				k.constants(r, keyword, values, p)
			}
			continue
		}
		if len(any.items) > maxAlternatives {
			k.fail(p.at, keyword, "there are more than %d alternatives", maxAlternatives)
			return nil
		}
		tag, partial := "", false
		if keyword == "oneOf" {
			tag = k.disjoint(any, p)
		} else if s.members["unevaluatedProperties"] != nil || s.members["unevaluatedItems"] != nil || depth > 0 {
			partial = !k.allDiffer(any)
		}
		var out []*rules
		for i, item := range any.items {
			copies := make([]*rules, len(list))
			for j, r := range list {
				if !k.spend(r.weight()) {
					return nil
				}
				copies[j] = r.clone()
			}
			copies = k.merge(copies, p.item(item, keyword, i), depth+1)
			for _, r := range copies {
				r.require(tag)
				r.partial = r.partial || partial
			}
			out = append(out, copies...)
			if len(out) > maxAlternatives {
				k.fail(p.at, keyword, "there are more than %d alternatives", maxAlternatives)
				return nil
			}
		}
		list = out
	}
	for _, keyword := range []string{"unevaluatedProperties", "unevaluatedItems"} {
		if v := s.members[keyword]; v != nil {
			k.unevaluated(list, keyword, v, p, fresh)
		}
	}
	return list
}

// list reads a keyword with a list of schemas.
func (k *compiler) list(p part, keyword string) *value {
	v := p.schema.members[keyword]
	if v != nil && (v.kind != array || len(v.items) == 0) {
		k.fail(p.at, keyword, "it must be a list of schemas")
		return nil
	}
	return v
}
