package chat

import (
	"encoding/json"
	"strings"
	"sync"

	c "ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
)

// argumentWriter makes the JSON of a call from markup that writes its arguments one by
// one.
type argumentWriter struct {
	parser  *Parser
	members *jsonschema.Members // what the function's schema says about its arguments
	seen    map[string]bool     // arguments of the call so far

	name    string          // of the argument
	dropped bool            // the argument occurred before
	raw     bool            // its value is passed on as it comes, as a string
	buffer  strings.Builder // of a value that must be complete first
}

// lazyMembers reads the schema of a function on first use, once for all answers to a
// request.
type lazyMembers struct {
	once    sync.Once
	members *jsonschema.Members
}

func (l *lazyMembers) get(schema []byte) *jsonschema.Members {
	l.once.Do(func() { l.members = jsonschema.MembersOf(schema) })
	return l.members
}

// begin begins a call.
func (w *argumentWriter) begin(name string, d *Delta) {
	w.parser.begin(name, d)
	w.seen = map[string]bool{}
	if w.members = &(jsonschema.Members{}); !w.parser.StateOnly {
		w.members = w.parser.functions[name].members.get(w.parser.functions[name].Parameters)
	}
}

// key writes the name of an argument.
func (w *argumentWriter) key(name string, d *Delta) {
	separator := ", "
	if len(w.seen) == 0 {
		separator = "{"
	}
	w.parser.add(d, separator+quoted(name)+": ", false)
	w.seen[name] = true
}

// openValue begins the value of an argument; raw is for one that can only be a string.
func (w *argumentWriter) openValue(name string, raw bool, d *Delta) {
	w.name, w.dropped = name, w.seen[name]
	w.raw = raw && !w.dropped
	w.buffer.Reset()
	if w.raw {
		w.key(name, d)
		w.parser.add(d, `"`, false)
	}
}

// value takes a part of a value.
func (w *argumentWriter) value(s string, d *Delta) {
	switch {
	case w.raw:
		var b strings.Builder
		escape(&b, s)
		w.parser.add(d, b.String(), false)
	case !w.dropped:
		w.buffer.WriteString(s)
	}
}

// closeValue ends a value. It becomes the JSON that it is if asJSON says so, otherwise a
// string.
func (w *argumentWriter) closeValue(asJSON func(value string) bool, d *Delta) {
	switch {
	case w.dropped:
		return
	case w.raw:
		w.parser.add(d, `"`, false)
		return
	}
	w.key(w.name, d)
	text := w.buffer.String()
	trimmed := strings.TrimSpace(text)
	if !json.Valid([]byte(trimmed)) || !asJSON(trimmed) {
		trimmed = quoted(text)
	}
	w.parser.add(d, trimmed, false)
}

// finish ends the call.
func (w *argumentWriter) finish(d *Delta) {
	if len(w.seen) == 0 {
		w.parser.add(d, "{}", true)
		return
	}
	w.parser.add(d, "}", true)
}

// argumentsOneByOne returns the grammar of the arguments of a function in the order of
// its schema, for markup that writes them one by one. free is the grammar of an
// unrestricted text. one returns the grammar of a named argument, as plain text or as any
// other JSON value; either may be nil.
func (f *Function) argumentsOneByOne(b *c.Budget, free *c.Expr, one func(name, text, json *c.Expr) *c.Expr) (*c.Expr, error) {
	var list []jsonschema.Parameter
	open := false
	if f.Parameters != nil {
		var err error
		f.enforced(b, func(o jsonschema.Options) error {
			list, open, err = jsonschema.Parameters(f.Parameters, free, o)
			return err
		})
		if err != nil {
			if f.Strict || b.Err() != nil {
				return nil, err
			}
			list, open = nil, true // any arguments are allowed
		}
	}
	rest := c.Empty()
	if open {
		rest = c.Repeat(one(otherName, free, jsonschema.Any()), 0, maxCalls)
	}
	for i := len(list) - 1; i >= 0; i-- {
		p := &list[i]
		argument := one(c.Literal(p.Name), p.Text, p.JSON)
		if !p.Required {
			argument = c.Optional(argument)
		}
		rest = c.Sequence(argument, rest)
	}
	return rest, nil
}

// otherName is the grammar of the name of an argument that no schema names.
var otherName = func() *c.Expr {
	var s c.Set
	for b := range 256 {
		if IsName(string(rune(b))) && b < 128 {
			s.Add(byte(b), byte(b))
		}
	}
	return c.Repeat(c.Bytes(s), 1, maxName)
}()
