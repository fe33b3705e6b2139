package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strings"

	c "ringmaster/constraint"
)

// value is a JSON value whose objects keep their order.
type value struct {
	kind    kinds
	text    string   // of a string; of a number, as it is written
	yes     bool     // of a boolean
	keys    []string // of an object
	items   []*value
	members map[string]*value
}

// kinds is a set of the types of JSON schema.
type kinds uint8

const (
	null kinds = 1 << iota
	boolean
	integer
	number // that is no integer
	text
	array
	object
	allKinds = null | boolean | integer | number | text | array | object
)

// maxNesting bounds how deep a schema is nested.
const maxNesting = 128

// decode reads a JSON document. Of several members with one name the last counts.
func decode(data []byte) (*value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxNesting {
		return nil, errors.New("it is nested too deep")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
		return &value{kind: null}, nil
	case bool:
		return &value{kind: boolean, yes: t}, nil
	case string:
		return &value{kind: text, text: t}, nil
	case json.Number:
		v := &value{kind: number, text: string(t)}
		if !strings.ContainsAny(v.text, ".eE") {
			v.kind = integer
		} else if r := v.rat(); r != nil && r.IsInt() {
			v.kind = integer
		}
		return v, nil
	case json.Delim:
		v := &value{kind: array}
		if t == '{' {
			v.kind, v.members = object, map[string]*value{}
		}
		for d.More() {
			key := ""
			if v.kind == object {
				name, err := d.Token()
				if err != nil {
					return nil, err
				}
				key, _ = name.(string)
			}
			item, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if v.kind == array {
				v.items = append(v.items, item)
				continue
			}
			if _, twice := v.members[key]; !twice {
				v.keys = append(v.keys, key)
			}
			v.members[key] = item
		}
		_, err := d.Token()
		return v, err
	}
	return nil, errors.New("it is no JSON")
}

// kindOf is the kind of a value that may be missing.
func (v *value) kindOf() kinds {
	if v == nil {
		return 0
	}
	return v.kind
}

// maxNumber is the length of the longest number that is computed with.
const maxNumber = 512

// rat is a number exactly, nil where its length or exponent is absurd.
func (v *value) rat() *big.Rat {
	if len(v.text) > maxNumber {
		return nil
	}
	if i := strings.IndexAny(v.text, "eE"); i >= 0 && len(v.text)-i > 5 {
		return nil
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return nil
	}
	return r
}

// equal reports whether two values are the same to JSON schema.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case boolean:
		return v.yes == w.yes
	case text:
		return v.text == w.text
	case integer, number:
		a, b := v.rat(), w.rat()
		return a != nil && b != nil && a.Cmp(b) == 0
	case array:
		if len(v.items) != len(w.items) {
			return false
		}
		for i := range v.items {
			if !v.items[i].equal(w.items[i]) {
				return false
			}
		}
	case object:
		if len(v.keys) != len(w.keys) {
			return false
		}
		for k, item := range v.members {
			if other, ok := w.members[k]; !ok || !item.equal(other) {
				return false
			}
		}
	}
	return true
}

// literal is a value as JSON, with the space that JSON may have.
func literal(v *value) *c.Expr {
	switch v.kind {
	case null:
		return c.Literal("null")
	case boolean:
		if v.yes {
			return c.Literal("true")
		}
		return c.Literal("false")
	case text:
		return quoted(v.text)
	case array:
		var items []*c.Expr
		for _, item := range v.items {
			items = append(items, literal(item))
		}
		return bracket("[", items, "]")
	case object:
		var items []*c.Expr
		for _, k := range v.keys {
			items = append(items, c.Sequence(quoted(k), colon, literal(v.members[k])))
		}
		return bracket("{", items, "}")
	}
	if v.kind == integer && strings.ContainsAny(v.text, ".eE") { // 2.0 is 2
		return c.Choice(c.Literal(v.text), c.Literal(v.rat().Num().String()))
	}
	return c.Literal(v.text)
}

// bracket is a list of items in brackets.
func bracket(open string, items []*c.Expr, end string) *c.Expr {
	out := []*c.Expr{c.Literal(open), space}
	for i, item := range items {
		if i > 0 {
			out = append(out, comma)
		}
		out = append(out, item)
	}
	return c.Sequence(append(out, space, c.Literal(end))...)
}

// Between the tokens of JSON there may be one space, or a line break with an
// indentation: enough for every style, and no answer is endless space.
var (
	space = c.Shared("space", c.Optional(c.Choice(c.Literal(" "), c.Sequence(c.Literal("\n"), c.Repeat(c.Literal(" "), 0, 64)))))
	comma = c.Shared("a comma", c.Sequence(space, c.Literal(","), space))
	colon = c.Shared("a colon", c.Sequence(space, c.Literal(":"), space))
)
