package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	c "ringmaster/constraint"
)

// value is a JSON value. Objects keep the order of their members.
type value struct {
	kind    kinds
	text    string   // of a string; of a number, as it is written
	yes     bool     // of a boolean
	keys    []string // of an object
	items   []*value
	members map[string]*value

	number *decimal // of a number, after the first use
	same   string   // key of a value of an enum or const, after the first use
}

// kinds is a set of the types of JSON schema.
type kinds uint8

const (
	null kinds = 1 << iota
	boolean
	integer
	number // that is not an integer
	text
	array
	object
	allKinds = null | boolean | integer | number | text | array | object
)

const maxNesting = 128

// decode reads a JSON document. Of several members with one name the last counts.
func decode(data []byte, b *c.Budget) (*value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, b, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, b *c.Budget, depth int) (*value, error) {
	if depth > maxNesting {
		return nil, errors.New("it is nested too deep")
	}
	if !b.Spend(1) {
		return nil, b.Err()
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
		} else if n, ok := v.decimal(); ok && n.isInt() {
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
			item, err := decodeValue(d, b, depth+1)
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
	return nil, errors.New("it is not JSON")
}

// kindOf returns the kind of a value that may be missing.
func (v *value) kindOf() kinds {
	if v == nil {
		return 0
	}
	return v.kind
}

// decimal returns a number exactly; false if its exponent is beyond maxExponent.
func (v *value) decimal() (decimal, bool) {
	if v.number == nil {
		d, ok := parseDecimal(v.text)
		if !ok {
			return decimal{}, false
		}
		v.number = &d
	}
	return *v.number, true
}

// key is equal for values that JSON schema considers equal, and only for these.
func (v *value) key() string {
	if v.same == "" {
		v.same = string(v.appendKey(nil))
	}
	return v.same
}

func (v *value) appendKey(b []byte) []byte {
	switch v.kind {
	case null:
		return append(b, 'n')
	case boolean:
		return strconv.AppendBool(b, v.yes)
	case text:
		return strconv.AppendQuote(b, v.text)
	case array:
		b = append(b, '[')
		for _, item := range v.items {
			b = append(item.appendKey(b), ',')
		}
		return append(b, ']')
	case object:
		b = append(b, '{')
		for _, name := range slices.Sorted(slices.Values(v.keys)) {
			b = append(strconv.AppendQuote(b, name), ':')
			b = append(v.members[name].appendKey(b), ',')
		}
		return append(b, '}')
	}
	d, ok := v.decimal()
	if !ok {
		return append(append(b, '='), v.text...)
	}
	return append(b, d.key()...)
}

// weight returns roughly the size of a value, for budgets.
func (v *value) weight() int {
	n := 1 + len(v.text)/16
	for _, item := range v.items {
		n += item.weight()
	}
	for _, name := range v.keys {
		n += len(name)/16 + v.members[name].weight()
	}
	return n
}

// literal returns a value as JSON, with the space that JSON may have.
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
	if d, ok := v.decimal(); ok && d.isInt() && d.small() && strings.ContainsAny(v.text, ".eE") { // 2.0 is 2
		return c.Choice(c.Literal(v.text), c.Literal(d.text()))
	}
	return c.Literal(v.text)
}

// bracket returns a list of items in brackets.
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

// Between the tokens of JSON there may be one space, or a line break with an indentation.
// That is enough for every style, and no answer can be endless space.
var (
	space = c.Shared("space", c.Optional(c.Choice(c.Literal(" "), c.Sequence(c.Literal("\n"), c.Repeat(c.Literal(" "), 0, 64)))))
	comma = c.Shared("a comma", c.Sequence(space, c.Literal(","), space))
	colon = c.Shared("a colon", c.Sequence(space, c.Literal(":"), space))
)
