package jsonschema

import (
	"slices"
)

// valuesOf reads an enum or a const.
func (k *compiler) valuesOf(keyword string, v *value, p part) []*value {
	if keyword == "const" {
		return []*value{v}
	}
	if v.kind != array {
		k.fail(p.at, keyword, "it must be a list")
	}
	return v.items
}

// constants adds a list of values.
func (k *compiler) constants(r *rules, keyword string, list []*value, p part) {
	if len(list) > maxEnum {
		k.cannot(p.at, keyword, "it has %d values; at most %d can be enforced", len(list), maxEnum)
		return
	}
	if r.listed && len(list) > 0 && len(list) == len(r.values) && &list[0] == &r.values[0] {
		return // the same list through another reference
	}
	if r.listed {
		known := k.keys(r.values)
		list = slices.DeleteFunc(slices.Clone(list), func(v *value) bool { return !k.keyIn(v, known) })
	}
	r.values, r.listed = list, true
}

// keys returns the set of the keys of values.
func (k *compiler) keys(values []*value) map[string]bool {
	out := make(map[string]bool, len(values))
	for _, v := range values {
		if key, ok := k.key(v); ok {
			out[key] = true
		}
	}
	return out
}

// key returns value.key; false: no work is left.
func (k *compiler) key(v *value) (string, bool) {
	if v.same == "" && !k.spend(1+v.weight()) {
		return "", false
	}
	key := v.key()
	return key, k.spend(1 + len(key)/64)
}

func (k *compiler) keyIn(v *value, set map[string]bool) bool {
	key, ok := k.key(v)
	return ok && set[key]
}

// listed returns the values of alternatives that are only constants, with or without
// their types and descriptions. Those of a oneOf must be different.
func (k *compiler) listed(any *value, keyword string, p part) (values []*value, ok bool) {
	if !k.spend(len(any.items)) {
		return nil, false
	}
	for _, item := range any.items {
		if item.kind != object || item.members["const"] == nil && item.members["enum"] == nil {
			return nil, false
		}
		for _, name := range item.keys {
			if name != "const" && name != "enum" && name != "type" && !slices.Contains(annotations, name) {
				return nil, false
			}
		}
		if item.members["const"] != nil && item.members["enum"] != nil || item.members["enum"] != nil && item.members["enum"].kind != array {
			return nil, false
		}
	}
	seen := map[string]int{}
	for i, item := range any.items {
		if v := item.members["type"]; v != nil {
			k.checkTypes(v, p.item(item, keyword, i))
		}
		types := typesOf(item)
		for _, v := range constants(item) {
			if v.kind&types == 0 {
				continue
			}
			key, ok := k.key(v)
			if !ok {
				return nil, true
			}
			before, twice := seen[key]
			if keyword == "oneOf" && twice && before != i {
				k.overlap(p, before, i)
			}
			if !twice {
				seen[key] = i
				values = append(values, v)
			}
		}
	}
	return values, true
}

// overlap refuses two alternatives of a oneOf, because a grammar would also allow a value
// that satisfies both.
func (k *compiler) overlap(p part, i, j int) {
	k.cannot(p.at, "oneOf", "one value may satisfy both schemas %d and %d, judged by their types, constants and required constant members; use anyOf", i, j)
}

// disjoint checks that no value satisfies two of the schemas of a oneOf, judged by their
// types, constants, required constant members and missing members. If they are objects
// that only a member with constants tells apart, which is not required because it has a
// default, its name is returned: with it they are disjoint.
func (k *compiler) disjoint(list *value, p part) (tag string) {
	var same [][2]int
	for i, a := range list.items {
		for j := range i {
			if k.err != nil {
				return ""
			}
			if !k.differ(k.fact(a), k.fact(list.items[j]), 0) {
				same = append(same, [2]int{j, i})
			}
		}
	}
	if len(same) == 0 {
		return ""
	}
	if properties := k.fact(list.items[same[0][0]]).properties(); properties != nil {
		for _, name := range properties.keys {
			if !slices.ContainsFunc(same, func(pair [2]int) bool {
				return !k.differAt(k.fact(list.items[pair[0]]), k.fact(list.items[pair[1]]), name)
			}) {
				return name
			}
		}
	}
	k.overlap(p, same[0][0], same[0][1])
	return ""
}

// allDiffer reports whether no value satisfies two schemas of a list.
func (k *compiler) allDiffer(list *value) bool {
	for i, a := range list.items {
		for j := range i {
			if !k.differ(k.fact(a), k.fact(list.items[j]), 0) {
				return false
			}
		}
	}
	return true
}

// differAt reports whether a member, if it is present, tells two objects apart.
func (k *compiler) differAt(a, b *facts, name string) bool {
	p, q := a.properties(), b.properties()
	return k.spend(1) && p != nil && q != nil && p.members[name] != nil && q.members[name] != nil && k.differ(k.fact(p.members[name]), k.fact(q.members[name]), 1)
}

// facts distinguish the values of one subschema from those of another.
type facts struct {
	schema   *value // after its references; nil: it is not a schema
	types    kinds
	values   map[string]bool // keys of its constants; nil: it may have other values
	required []string
	demanded map[string]bool
}

// properties returns the members that an object describes; nil: none, or it is no object.
func (f *facts) properties() *value {
	if f.schema == nil || f.types != object {
		return nil
	}
	return f.schema.members["properties"]
}

// forbids reports whether an object cannot have a member.
func (f *facts) forbids(name string) bool {
	s := f.schema
	others := s.members["additionalProperties"]
	if others.kindOf() != boolean || others.yes || s.members["patternProperties"] != nil {
		return false
	}
	p := s.members["properties"]
	return p == nil || p.members[name] == nil
}

// fact finds the facts of a subschema, once.
func (k *compiler) fact(s *value) *facts {
	f := k.facts[s]
	if f != nil {
		return f
	}
	f = &facts{}
	k.facts[s] = f
	to := k.target(s, 0)
	if to == nil || to.kind != object || !k.spend(8) {
		return f
	}
	f.schema, f.types = to, typesOf(to)
	if list := constants(to); list != nil {
		f.values = k.keys(list)
	}
	if v := to.members["required"]; v != nil && v.kind == array && k.spend(len(v.items)) {
		f.demanded = make(map[string]bool, len(v.items))
		for _, item := range v.items {
			if !f.demanded[item.text] {
				f.demanded[item.text] = true
				f.required = append(f.required, item.text)
			}
		}
	}
	return f
}

// differ reports whether no value satisfies two subschemas.
func (k *compiler) differ(a, b *facts, depth int) bool {
	if !k.spend(1) || a.schema == nil || b.schema == nil || depth > 8 {
		return false
	}
	if a.types&b.types == 0 {
		return true
	}
	if a.values != nil && b.values != nil {
		if len(a.values) > len(b.values) {
			a, b = b, a
		}
		k.spend(len(a.values))
		for key := range a.values {
			if b.values[key] {
				return false
			}
		}
		return true
	}
	if a.types != object || b.types != object {
		return false
	}
	for _, name := range b.required {
		if k.spend(1) && a.forbids(name) {
			return true
		}
	}
	p, q := a.properties(), b.properties()
	for _, name := range a.required {
		if !k.spend(1) {
			return false
		}
		if b.forbids(name) {
			return true
		}
		if b.demanded[name] && p != nil && q != nil && p.members[name] != nil && q.members[name] != nil && k.differ(k.fact(p.members[name]), k.fact(q.members[name]), depth+1) {
			return true
		}
	}
	return false
}

// target follows references.
func (k *compiler) target(s *value, depth int) *value {
	if s.kind == object && s.members["$ref"] != nil && depth < maxInline {
		if to, _ := k.resolve(s.members["$ref"], nil); to != nil {
			return k.target(to, depth+1)
		}
		return nil
	}
	return s
}

// constants returns the values of an enum or const, nil without.
func constants(s *value) []*value {
	if v := s.members["const"]; v != nil {
		return []*value{v}
	}
	if v := s.members["enum"]; v != nil && v.kind == array {
		return v.items
	}
	return nil
}

var typeNames = map[string]kinds{"null": null, "boolean": boolean, "integer": integer, "number": integer | number, "string": text, "array": array, "object": object}

// typesOf returns the types that a schema allows by its keyword "type".
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
	for _, item := range v.items[:min(len(v.items), len(typeNames))] {
		out |= typeNames[item.text]
	}
	return out
}
