package jsonschema

import (
	"slices"

	c "ringmaster/constraint"
)

// members adds a keyword about the members of objects.
func (k *compiler) members(r *rules, keyword string, v *value, p part) {
	switch {
	case keyword == "required":
		if v.kind != array {
			k.fail(p.at, keyword, "it must be a list of names")
		}
		if len(v.items)+len(r.required) > maxSchemas {
			k.fail(p.at, keyword, "it has more than %d names", maxSchemas)
			return
		}
		for _, name := range v.items {
			switch {
			case name.kind != text:
				k.fail(p.at, keyword, "it must be a list of names")
			case !k.name(name.text, keyword, p):
				return
			case !r.demanded[name.text]:
				r.demanded[name.text] = true
				r.required = append(r.required, name.text)
			}
		}
	case keyword == "additionalProperties" && v.kind == boolean && v.yes:
		r.open = true
	case keyword == "additionalProperties" || keyword == "propertyNames":
		if keyword == "propertyNames" {
			r.keys = append(r.keys, p.sub(v, keyword))
			return
		}
		r.open = true
		// additionalProperties refers to the names of the same subschema only; with the
		// names of others it would mean something else.
		if k.spend(len(r.names)) && len(r.names) > 0 && !sameNames(r.names, p.schema.members["properties"]) {
			k.cannot(p.at, keyword, "it cannot be enforced together with properties of another schema")
		}
		if v.kind == boolean {
			r.closed = true
			return
		}
		r.additional = append(r.additional, p.sub(v, keyword))
	case v.kind != object:
		k.fail(p.at, keyword, "it must be an object of schemas")
	case keyword == "properties":
		for _, name := range v.keys {
			if !k.name(name, keyword, p) {
				return
			}
			if r.properties[name] == nil {
				if r.closed || r.additional != nil {
					if p.schema.members["additionalProperties"] == nil {
						k.cannot(p.at, keyword, "properties cannot be enforced together with additionalProperties of another schema")
					}
				}
				r.names = append(r.names, name)
			}
			r.properties[name] = append(r.properties[name], p.member(v.members[name], keyword, name))
		}
	default:
		if len(v.keys)+len(r.patternNames) > maxPatterns {
			k.fail(p.at, keyword, "it has more than %d patterns", maxPatterns)
			return
		}
		for _, name := range v.keys {
			if !k.spend(4) {
				return
			}
			if _, twice := r.patternParts[name]; twice {
				k.cannot(p.at, keyword, "the pattern %.40q comes twice", name)
			}
			r.patternNames = append(r.patternNames, name)
			r.patternParts[name] = p.member(v.members[name], keyword, name)
		}
	}
}

// name checks the name of a member; false: the schema is refused.
func (k *compiler) name(name, keyword string, p part) bool {
	if len(name) > maxName {
		k.fail(p.at, keyword, "the name %q has %d bytes; at most %d are allowed", shortened(name), len(name), maxName)
		return false
	}
	return k.spend(4)
}

// maxPatterns bounds patternProperties, because each pattern is tried with each name.
const maxPatterns = 16

func sameNames(names []string, properties *value) bool {
	return properties != nil && !slices.ContainsFunc(names, func(n string) bool { return properties.members[n] == nil })
}

// field is a member that a schema names.
type field struct {
	value    *c.Expr // including the name
	required bool
}

// object returns the grammar of objects.
func (k *compiler) object(r *rules) *c.Expr {
	k.settle(r)
	fields, names := k.fields(r)
	if fields == nil && k.spend(len(r.required)) && slices.ContainsFunc(r.required, func(n string) bool { return r.closed && r.properties[n] == nil }) {
		return c.Never()
	}
	other := k.others(r, names)
	if k.err != nil {
		return c.Never()
	}
	required := 0
	for _, f := range fields {
		if f.value.IsNever() && f.required {
			return c.Never()
		}
		if f.required {
			required++
		}
	}
	least, most := r.minMembers, r.maxMembers
	if least <= required {
		least = 0
	}
	if most >= 0 && most < required {
		return c.Never()
	}
	if most >= len(fields) && other == nil {
		most = -1
	}
	if len(fields) == 0 {
		return c.Sequence(c.Literal("{"), space, repeated(other, least, most), space, c.Literal("}"))
	}
	if (least > 0 || most >= 0) && (max(least, most)+1)*len(fields) > 1<<14 {
		k.cannot(r.at, "minProperties", "so many members cannot be counted")
		least, most = 0, -1
	}
	counted := max(1, least, most)
	if !k.spend(8 * len(fields) * counted) { // a rule for each field and number of members before it
		return c.Never()
	}
	if counted > 1 { // the fields are part of several rules
		for i := range fields {
			fields[i].value = c.Shared("a member", fields[i].value)
		}
	}
	o := &objects{fields: fields, other: other, least: least, most: most, rules: map[[2]int]*c.Rule{}}
	return c.Sequence(c.Literal("{"), space, o.from(0, 0), space, c.Literal("}"))
}

// repeated returns a list of items with commas; nil: no item.
func repeated(item *c.Expr, least, most int) *c.Expr {
	if item == nil || most == 0 {
		if least > 0 {
			return c.Never()
		}
		return c.Empty()
	}
	if most > 0 {
		most--
	}
	some := c.Sequence(item, c.Repeat(c.Sequence(comma, item), max(0, least-1), most))
	if least > 0 {
		return some
	}
	return c.Optional(some)
}

// fields returns the members that the schema names, or requires without naming them, and
// their names.
func (k *compiler) fields(r *rules) ([]field, []string) {
	var out []field
	names := slices.Clone(r.names)
	for _, name := range r.required {
		if r.properties[name] == nil {
			names = append(names, name)
		}
	}
	var keys []*rules
	if r.keys != nil && len(names) > 0 {
		keys = k.keyRules(r)
	}
	for _, name := range names {
		if !k.spend(4) {
			return nil, names
		}
		parts := slices.Clip(r.properties[name])
		matched := false
		for _, pattern := range r.patternNames {
			ok, known := k.match(pattern, name)
			if !known {
				k.cannot(r.at, "patternProperties", "%v", k.pattern(pattern).err)
			} else if ok {
				parts, matched = append(parts, r.patternParts[pattern]), true
			}
		}
		if r.properties[name] == nil && !matched {
			switch {
			case r.closed:
				return nil, names // required, but not allowed
			case r.additional != nil:
				parts = r.additional
			default:
				parts = []part{{&value{kind: boolean, yes: true}, r.at}}
			}
		}
		value := c.Never()
		if r.keys == nil || k.keyAllowed(r, keys, name) {
			value = k.all(parts)
		}
		out = append(out, field{c.Sequence(k.built(quoted(name)), colon, value), r.demanded[name]})
	}
	return out, names
}

// others returns a member that the schema does not name, nil if there may be none.
func (k *compiler) others(r *rules, names []string) *c.Expr {
	if len(r.patternNames) > 0 {
		return k.matching(r, names)
	}
	if r.closed {
		return nil
	}
	if !k.spend(othersWork(names)) {
		return nil
	}
	key := others(names)
	if r.keys != nil {
		key = k.otherKeys(r, names)
	}
	value := anyValue
	if r.additional != nil {
		value = k.all(r.additional)
	}
	if e := c.Sequence(key, colon, value); !e.IsNever() {
		return e
	}
	return nil
}

// matching returns the members that patternProperties decides about: a choice for each set
// of the patterns that a name may match, nil if there may be none.
func (k *compiler) matching(r *rules, names []string) *c.Expr {
	if len(r.patternNames) > maxTogether || r.keys != nil {
		k.cannot(r.at, "patternProperties", "more than %d patterns, or patterns and propertyNames, cannot be enforced together", maxTogether)
		return nil
	}
	var out []*c.Expr
	for set := range 1 << len(r.patternNames) {
		list := []c.Condition{}
		if len(names) > 0 { // each has its own place in the grammar
			list = append(list, c.Condition{Pattern: noneOf(names), Trusted: true})
		}
		var parts []part
		for i, pattern := range r.patternNames {
			matches := set>>i&1 != 0
			list = append(list, c.Condition{Pattern: pattern, Not: !matches})
			if matches {
				parts = append(parts, r.patternParts[pattern])
			}
		}
		if set == 0 && r.closed {
			continue
		}
		key, err := k.intersection(list, 0, -1, character, "JSON")
		if err != nil {
			k.cannot(r.at, "patternProperties", "%v", err)
			continue
		}
		if set == 0 {
			parts = r.additional
		}
		value := anyValue
		if len(parts) > 0 {
			value = k.all(parts)
		}
		if e := c.Sequence(c.Literal(`"`), key, c.Literal(`"`), colon, value); !e.IsNever() {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return c.Choice(out...)
}

// maxTogether is the most patterns of patternProperties, because each set of them is a
// choice of its own.
const maxTogether = 4

// objects builds the members of an object in order: a rule for each field and number of
// members before it, up to the number that matters.
type objects struct {
	fields      []field
	other       *c.Expr
	least, most int // of members; most -1: without end
	rules       map[[2]int]*c.Rule
}

// from returns the rest of the members from field i on, after n members.
func (o *objects) from(i, n int) *c.Expr {
	n = min(n, max(1, o.least, o.most))
	if r := o.rules[[2]int{i, n}]; r != nil {
		return c.Use(r)
	}
	r := &c.Rule{Name: "a member of an object"}
	o.rules[[2]int{i, n}] = r
	before := c.Empty()
	if n > 0 {
		before = comma
	}
	switch {
	case i < len(o.fields):
		f := o.fields[i]
		var out []*c.Expr
		if !f.value.IsNever() && (o.most < 0 || n < o.most) {
			out = append(out, c.Sequence(before, f.value, o.from(i+1, n+1)))
		}
		if !f.required {
			out = append(out, o.from(i+1, n))
		}
		r.Body = c.Choice(out...)
	case n == 0:
		r.Body = repeated(o.other, o.least, o.most)
	case o.other == nil:
		r.Body = c.Empty()
		if n < o.least {
			r.Body = c.Never()
		}
	default:
		left := -1
		if o.most >= 0 {
			left = o.most - n
		}
		r.Body = c.Repeat(c.Sequence(comma, o.other), max(0, o.least-n), left)
	}
	return c.Use(r)
}
