package jsonschema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// annotations are keywords that have no effect beside a reference.
var annotations = []string{
	"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment", "$id", "id", "$schema", "$defs", "definitions", "$anchor", "$vocabulary",
	"contentEncoding", "contentMediaType", "contentSchema", "nullable", "enumDescriptions", "markdownDescription", "strict",
}

// reference returns the target of a subschema that is only a reference.
func (k *compiler) reference(p part) (target *value, at *place, ok bool) {
	ref := p.schema.members["$ref"]
	if p.schema.kind != object || ref == nil {
		return nil, nil, false
	}
	for _, name := range p.schema.keys {
		if name != "$ref" && !k.alone && !slices.Contains(annotations, name) {
			return nil, nil, false
		}
	}
	target, at = k.resolve(ref, p.at)
	return target, at, target != nil
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// resolve finds the subschema that a $ref names, and its place.
func (k *compiler) resolve(ref *value, at *place) (*value, *place) {
	if v := k.targets[ref.text]; v != nil && ref.kind == text {
		return v, &place{path: strings.TrimPrefix(ref.text, "#")}
	}
	if !k.spend(1 + len(ref.text)/16) {
		return nil, nil
	}
	path, ok := strings.CutPrefix(ref.text, "#")
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	if ref.kind != text || !ok || path != "" && path[0] != '/' {
		k.fail(at, "$ref", "%.80q is no reference into the same document, such as #/$defs/NAME", ref.text)
		return nil, nil
	}
	v := k.root
	if path != "" {
		for _, name := range strings.Split(path[1:], "/") {
			name = pointerUnescapes.Replace(name)
			switch v.kind {
			case object:
				v = v.members[name]
			case array:
				i, err := strconv.Atoi(name)
				if err != nil || i < 0 || i >= len(v.items) {
					v = nil
				} else {
					v = v.items[i]
				}
			default:
				v = nil
			}
			if v == nil {
				k.fail(at, "$ref", "there is nothing at %.80q", ref.text)
				return nil, nil
			}
		}
	}
	k.targets[ref.text] = v
	return v, &place{path: path}
}

// alternatives returns those of a subschema that is only an anyOf, nil for others. They
// need not be merged with anything, so that alternatives that are references may contain
// themselves.
func (k *compiler) alternatives(p part) []*value {
	if p.schema.kind != object || p.schema.members["anyOf"] == nil {
		return nil
	}
	for _, name := range p.schema.keys {
		if name != "anyOf" && !slices.Contains(annotations, name) {
			return nil
		}
	}
	items := k.list(p, "anyOf")
	if items == nil || len(items.items) > maxAlternatives {
		return nil
	}
	return items.items
}
