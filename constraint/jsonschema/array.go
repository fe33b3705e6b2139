package jsonschema

import (
	"slices"

	c "ringmaster/constraint"
)

// elements adds a keyword about the elements of arrays. A list of schemas is
// prefixItems in draft 2020-12, and items in draft 7.
func (k *compiler) elements(r *rules, keyword string, v *value, p part) {
	switch {
	case v.kind == array:
		if keyword == "additionalItems" {
			k.fail(p.at, keyword, "it must be a schema")
		}
		if !k.spend(2 * len(v.items)) {
			return
		}
		for i, item := range v.items {
			if i >= len(r.prefix) {
				r.prefix = append(r.prefix, nil)
			}
			r.prefix[i] = append(r.prefix[i], p.item(item, keyword, i))
		}
	case keyword == "additionalItems" && (p.schema.members["items"].kindOf() != array): // has no effect
	case keyword == "prefixItems":
		k.fail(p.at, keyword, "it must be a list of schemas")
	default: // the elements that the same subschema does not list
		from := 0
		if list := p.schema.members["prefixItems"]; list != nil {
			from = len(list.items)
		} else if list := p.schema.members["items"]; list.kindOf() == array {
			from = len(list.items)
		}
		r.items = append(r.items, rest{p.sub(v, keyword), from})
	}
}

// array returns the grammar of arrays.
func (k *compiler) array(r *rules) *c.Expr {
	listed := len(r.prefix)
	for _, i := range r.items {
		listed = max(listed, i.from)
	}
	var inside *c.Expr
	item := k.element(r, listed)
	if listed == 0 {
		inside = repeated(item, r.minItems, r.maxItems)
	} else {
		inside = k.after(r, 0, listed, item)
	}
	return c.Sequence(c.Literal("["), space, inside, space, c.Literal("]"))
}

// element returns the grammar of element n, nil if there may be none.
func (k *compiler) element(r *rules, n int) *c.Expr {
	var parts []part
	if !k.spend(4 + len(r.items)) {
		return nil
	}
	if n < len(r.prefix) {
		parts = slices.Clip(r.prefix[n])
	}
	for _, i := range r.items {
		if n >= i.from {
			parts = append(parts, i.part)
		}
	}
	if len(parts) == 0 {
		return anyValue
	}
	if e := k.all(parts); !e.IsNever() {
		return e
	}
	return nil
}

// after returns the rest of an array after n elements. The first listed elements have
// their own grammars; item is any later one.
func (k *compiler) after(r *rules, n, listed int, item *c.Expr) *c.Expr {
	var out []*c.Expr
	if n >= r.minItems {
		out = append(out, c.Empty())
	}
	before := comma
	if n == 0 {
		before = c.Empty()
	}
	switch {
	case r.maxItems >= 0 && n >= r.maxItems:
	case n < listed:
		if e := k.element(r, n); e != nil {
			out = append(out, c.Sequence(before, e, k.after(r, n+1, listed, item)))
		}
	case item != nil:
		left := -1
		if r.maxItems >= 0 {
			left = r.maxItems - n
		}
		return c.Repeat(c.Sequence(before, item), max(0, r.minItems-n), left)
	}
	return c.Choice(out...)
}
