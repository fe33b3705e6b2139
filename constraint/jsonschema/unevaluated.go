package jsonschema

import (
	"slices"
)

// hasElements reports whether a schema has said something about members or elements.
func (r *rules) hasElements() bool {
	return len(r.names) > 0 || len(r.patternNames) > 0 || r.additional != nil || r.open || len(r.prefix) > 0 || len(r.items) > 0
}

// unevaluated adds a keyword about the members or elements that no schema beside or below
// it describes. Those are known after all of them, and only if no schema further out has
// added its own; fresh says so.
func (k *compiler) unevaluated(list []*rules, keyword string, v *value, p part, fresh bool) {
	if !fresh {
		k.cannot(p.at, keyword, "it cannot be enforced together with members or elements of an outer schema")
		return
	}
	no := v.kind == boolean && !v.yes
	for _, r := range list {
		switch {
		case r.partial:
			k.cannot(p.at, keyword, "it cannot be enforced together with conditions, or with an anyOf if a value may satisfy several of its schemas")
			return
		case keyword == "unevaluatedProperties" && (r.closed || r.additional != nil || r.open): // all are described
		case v.kind == boolean && v.yes: // of all that is left
			r.open = r.open || keyword == "unevaluatedProperties"
		case keyword == "unevaluatedProperties" && no:
			r.closed = true
		case keyword == "unevaluatedProperties":
			r.additional = append(r.additional, p.sub(v, keyword))
		case slices.ContainsFunc(r.items, func(i rest) bool { return i.from <= len(r.prefix) }): // all are described
		case no:
			r.maxItems = least(r.maxItems, len(r.prefix))
		default:
			r.items = append(r.items, rest{p.sub(v, keyword), len(r.prefix)})
		}
	}
}
