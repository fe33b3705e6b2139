package jsonschema

import (
	"regexp"
	"slices"
	"strings"

	c "ringmaster/constraint"
)

// require adds a member that must be present; "" adds none.
func (r *rules) require(name string) {
	if name != "" && !r.demanded[name] {
		r.demanded[name] = true
		r.required = append(r.required, name)
	}
}

// settle decides what is known once all schemas have been read: whether others than the
// named members are allowed, and which names propertyNames lists.
func (k *compiler) settle(r *rules) {
	if k.options.Closed && !r.open && r.additional == nil && r.describes {
		r.closed = true
	}
	if r.keys == nil || len(r.patternNames) > 0 {
		return
	}
	var names []string
	for _, a := range k.keyRules(r) {
		if !a.listed {
			return
		}
		for _, v := range a.values {
			ok, known := k.accepts(a, v)
			if !known {
				return
			}
			if ok && v.kind == text && k.spend(1+len(names)) && !slices.Contains(names, v.text) {
				names = append(names, v.text)
			}
		}
	}
	if !k.spend(len(names) * (1 + len(r.names))) {
		return
	}
	for _, name := range r.names {
		if !slices.Contains(names, name) {
			r.properties[name] = append(r.properties[name], part{&value{kind: boolean}, r.at})
		}
	}
	if !r.closed {
		for _, name := range names {
			if r.properties[name] != nil {
				continue
			}
			r.names = append(r.names, name)
			r.properties[name] = slices.Clone(r.additional)
			if r.additional == nil {
				r.properties[name] = []part{{&value{kind: boolean, yes: true}, r.at}}
			}
		}
	}
	r.closed, r.additional, r.keys = true, nil, nil
}

// keyRules returns the alternatives for the names of members.
func (k *compiler) keyRules(r *rules) []*rules {
	list := []*rules{newRules(&place{r.at, "propertyNames", ""})}
	for _, p := range r.keys {
		list = k.merge(list, p, 0)
	}
	for _, a := range list {
		a.kinds &= text
	}
	return list
}

// keyAllowed reports whether propertyNames, with these keyRules, allows a name.
func (k *compiler) keyAllowed(r *rules, keys []*rules, name string) bool {
	v := &value{kind: text, text: name}
	for _, a := range keys {
		ok, known := k.accepts(a, v)
		if !known {
			k.cannot(r.at, "propertyNames", "it cannot be decided for the member %q", shortened(name))
		}
		if ok && a.listed {
			ok = slices.ContainsFunc(a.values, func(w *value) bool { return w.kind == text && w.text == name })
		}
		if ok {
			return true
		}
	}
	return false
}

// noneOf is the regular expression of all texts but some.
func noneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return `^(?!(?:` + strings.Join(quoted, "|") + `)$)`
}

// otherKeys returns the names that propertyNames allows, except some.
func (k *compiler) otherKeys(r *rules, names []string) *c.Expr {
	var out []*c.Expr
	for _, a := range k.keyRules(r) {
		switch {
		case a.listed:
			a.values = slices.DeleteFunc(slices.Clone(a.values), func(v *value) bool { return slices.Contains(names, v.text) })
		case len(names) > 0:
			a.patterns = append(a.patterns, noneOf(names))
		}
		out = append(out, k.alternative(a))
	}
	return c.Choice(out...)
}
