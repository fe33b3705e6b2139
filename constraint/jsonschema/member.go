package jsonschema

import (
	"slices"

	c "ringmaster/constraint"
)

// Members are those of a schema's object, for markup in which a text that could be a
// string and something else does not say what it is.
type Members struct {
	k      *compiler
	wholes []*rules // alternatives of the object
}

// MembersOf reads the schema of an object. Of one that cannot be followed no member is
// known.
func MembersOf(schema []byte) *Members {
	root, err := decode(schema)
	if err != nil {
		return &Members{}
	}
	m := &Members{k: &compiler{options: Options{Lenient: true}, root: root, rules: map[*value]*c.Rule{}}}
	m.wholes = m.k.merge([]*rules{newRules("")}, part{root, ""}, 0)
	if m.k.err != nil {
		m.wholes = nil
	}
	return m
}

// Member is what the schema demands of one member. One that it does not describe is
// not Known and may be anything.
type Member struct {
	Known        bool
	alternatives []*rules
}

// Find finds a member by its name.
func (m *Members) Find(name string) Member {
	var out Member
	for _, whole := range m.wholes {
		parts := whole.properties[name]
		if len(parts) == 0 {
			return Member{}
		}
		m.k.count = 0
		list := []*rules{newRules(parts[0].pointer)}
		for _, p := range parts {
			list = m.k.merge(list, p, 0)
		}
		if m.k.err != nil {
			m.k.err = nil
			return Member{}
		}
		out.Known, out.alternatives = true, append(out.alternatives, list...)
	}
	return out
}

// Kinds reports whether the member may be a string, and whether it may be anything
// else.
func (m *Member) Kinds() (isString, isOther bool) {
	if !m.Known {
		return true, true
	}
	for _, r := range m.alternatives {
		kinds := r.kinds
		if r.listed {
			kinds = 0
			for _, v := range r.values {
				kinds |= v.kind & r.kinds
			}
		}
		isString, isOther = isString || kinds&text != 0, isOther || kinds&^text != 0
	}
	return isString, isOther
}

// Takes reports whether the member may be a JSON value. What is inside of arrays and
// objects is not looked at, but where the schema lists its values.
func (m *Member) Takes(data []byte) bool {
	v, err := decode(data)
	if err != nil {
		return false
	}
	return !m.Known || slices.ContainsFunc(m.alternatives, func(r *rules) bool {
		ok, _ := r.accepts(v)
		return ok && (!r.listed || slices.ContainsFunc(r.values, v.equal))
	})
}
