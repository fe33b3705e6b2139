package jsonschema

import (
	"slices"
	"unicode/utf8"

	c "ringmaster/constraint"
)

// Parameter is an argument of a function, for markup that writes arguments one by one.
type Parameter struct {
	Name     string
	Required bool
	Text     *c.Expr // a string as plain text, without quotes and escapes; nil: it is not a string
	JSON     *c.Expr // any other value as JSON; nil: it is always a string
}

// Parameters returns the members of the object that a schema allows, in its order; open
// means that others are allowed. free is the grammar of a string that the schema does not
// restrict. The error is of type *Error. A schema with alternatives is also an error,
// because its members may depend on each other.
func Parameters(schema []byte, free *c.Expr, o Options) (list []Parameter, open bool, err error) {
	k, err := newCompiler(schema, o)
	if err != nil {
		return nil, false, err
	}
	root := part{schema: k.root}
	alternatives := k.merge([]*rules{newRules(nil)}, root, 0)
	if k.err == nil && (len(alternatives) != 1 || alternatives[0].kinds&object == 0) {
		k.fail(nil, "", "the arguments of a function are one object, without alternatives")
	}
	if k.err != nil {
		return nil, false, k.err
	}
	r := alternatives[0]
	k.settle(r)
	if len(r.patternNames) > 0 || r.keys != nil || r.minMembers > 0 || r.maxMembers >= 0 || r.additional != nil {
		k.cannot(nil, "", "patterns, names and numbers of arguments cannot be enforced")
	}
	names := slices.Clone(r.names)
	for _, name := range r.required {
		if r.properties[name] == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !k.spend(8) {
			break
		}
		parts := r.properties[name]
		if parts == nil {
			parts = []part{{&value{kind: boolean, yes: true}, nil}}
		}
		p := k.parameter(parts, free)
		p.Name, p.Required = name, r.demanded[name]
		switch {
		case p.Text != nil || p.JSON != nil:
			list = append(list, p)
		case p.Required:
			k.fail(root.member(nil, "properties", name).at, "", "nothing can satisfy it, and it is required")
		}
	}
	if k.err != nil {
		return nil, false, k.err
	}
	return list, !r.closed, nil
}

// parameter returns the grammar of one argument in both forms.
func (k *compiler) parameter(parts []part, free *c.Expr) (out Parameter) {
	list := []*rules{newRules(parts[0].at)}
	for _, p := range parts {
		list = k.merge(list, p, 0)
	}
	var texts, others []*c.Expr
	for _, r := range list {
		if r.free() && !r.listed {
			texts, others = append(texts, free), append(others, notText)
			continue
		}
		if r.kinds&text != 0 {
			texts = append(texts, k.plain(r, free))
		}
		if r.kinds&^text != 0 {
			rest := r.clone()
			rest.kinds &^= text
			if r.listed {
				rest.values = slices.DeleteFunc(slices.Clone(r.values), func(v *value) bool { return v.kind == text })
			}
			others = append(others, k.alternative(rest))
		}
	}
	if e := c.Choice(texts...); !e.IsNever() {
		out.Text = e
	}
	if e := c.Choice(others...); !e.IsNever() {
		out.JSON = e
	}
	return out
}

// plain returns the grammar of a string as plain text.
func (k *compiler) plain(r *rules, free *c.Expr) *c.Expr {
	if r.listed {
		var out []*c.Expr
		for _, v := range r.values {
			if ok, _ := k.accepts(r, v); ok && v.kind == text {
				out = append(out, k.built(c.Literal(v.text)))
			}
		}
		return c.Choice(out...)
	}
	if r.minLength == 0 && r.maxLength < 0 && len(r.patterns) == 0 && r.format == "" {
		return free
	}
	return k.text(r, "plain", c.Runes, c.Runes(0, utf8.MaxRune))
}
