package jsonschema

import (
	"context"
	"slices"
	"sync"

	c "ringmaster/constraint"
)

// Members are the members of a schema's object. Markup needs them when a text could be a
// string or something else and does not say which. They are safe for concurrent use.
type Members struct {
	mu     sync.Mutex
	k      *compiler // nil: nothing is known
	wholes []*rules  // alternatives of the object
	found  map[string]Member
}

// membersWork bounds the work of reading one schema of a length for its members, however
// often these are looked up. Beyond it no further member is known.
func membersWork(bytes int) int { return min(c.DefaultWork/2, 1<<13+4*bytes) }

// MembersOf reads the schema of an object. If the schema cannot be followed, no member is
// known.
func MembersOf(schema []byte) *Members {
	m := &Members{found: map[string]Member{}}
	k, err := newCompiler(schema, Options{Lenient: true, Budget: c.NewBudget(context.Background(), membersWork(len(schema)))})
	if err != nil {
		return m
	}
	m.k = k
	m.wholes = k.merge([]*rules{newRules(nil)}, part{schema: k.root}, 0)
	if k.err != nil {
		m.wholes = nil
	}
	return m
}

// Member is what the schema demands of one member. A member that the schema does not
// describe is not Known and may be anything.
type Member struct {
	Known        bool
	alternatives []*rules
	of           *Members
}

// Find finds a member by its name.
func (m *Members) Find(name string) Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, ok := m.found[name]
	if ok || len(m.wholes) == 0 || m.wholes[0].properties[name] == nil {
		return out
	}
	out = m.find(name)
	m.found[name] = out
	return out
}

func (m *Members) find(name string) Member {
	out := Member{of: m}
	for _, whole := range m.wholes {
		parts := whole.properties[name]
		if len(parts) == 0 {
			return Member{}
		}
		m.k.count = 0
		list := []*rules{newRules(parts[0].at)}
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

// Kinds reports whether the member may be a string, and whether it may be anything else.
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

// Takes reports whether the member may be a JSON value. It looks inside arrays and
// objects only where the schema lists the member's values.
func (m *Member) Takes(data []byte) bool {
	v, err := decode(data, nil)
	if err != nil {
		return false
	}
	if !m.Known {
		return true
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	key := v.key()
	return slices.ContainsFunc(m.alternatives, func(r *rules) bool {
		ok, _ := m.of.k.accepts(r, v)
		return ok && (!r.listed || slices.ContainsFunc(r.values, func(w *value) bool { return w.key() == key }))
	})
}
