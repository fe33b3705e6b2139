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

// value is a JSON value whose objects keep their order.
type value struct {
	kind    kinds
	text    string   // of a string; of a number, as it is written
	yes     bool     // of a boolean
	keys    []string // of an object
	items   []*value
	members map[string]*value

	number *decimal // of a number, once it has been asked for
	same   string   // key, once it has been asked for of a value of an enum or const
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
	return nil, errors.New("it is no JSON")
}

// kindOf is the kind of a value that may be missing.
func (v *value) kindOf() kinds {
	if v == nil {
		return 0
	}
	return v.kind
}

// decimal is a number exactly; false where its exponent is absurd.
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

// key is the same for values that are the same to JSON schema, and only for these.
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

// weight is about how much there is of a value, for budgets.
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
	if d, ok := v.decimal(); ok && d.isInt() && d.small() && strings.ContainsAny(v.text, ".eE") { // 2.0 is 2
		return c.Choice(c.Literal(v.text), c.Literal(d.text()))
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
