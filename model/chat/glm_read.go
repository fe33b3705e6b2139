package chat

import (
	"encoding/json"
	"strings"

	c "ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
)

// glmMarkup reads and allows the calls of GLM:
//
//	<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>
//
// Strings are written as they are, other values as JSON; the schema of the function says
// which. Space between tags is accepted, as in the layout of GLM-4.5.
type glmMarkup struct{}

const glmSpace = " \t\r\n"

// glmName reads the name of a function at the start of s, up to the tag that follows it.
// n is 0 if there is none; more means that one may follow.
func glmName(s string) (name string, n int, more bool) {
	head, _, tag := strings.Cut(s, "<")
	if name = strings.Trim(head, glmSpace); !IsName(name) {
		return "", 0, name == "" && !tag && len(s) < maxHeader
	}
	rest := s[len(head):]
	for _, mark := range []string{glmKey, glmCallEnd} {
		switch {
		case strings.HasPrefix(rest, mark):
			return name, len(head), false
		case strings.HasPrefix(mark, rest):
			more = len(s) < maxHeader
		}
	}
	return "", 0, more
}

// header implements markup.
func (glmMarkup) header(s string, known func(string) bool) (n int, name string, more bool) {
	rest, ok := strings.CutPrefix(s, glmCall)
	if !ok {
		return 0, "", strings.HasPrefix(glmCall, s)
	}
	name, n, more = glmName(rest)
	if n == 0 || !known(name) {
		return 0, "", more
	}
	return len(glmCall) + n, name, false
}

// marked implements markup.
func (glmMarkup) marked(s string) bool { return strings.HasPrefix(s, glmCall) }

// reader implements markup.
func (glmMarkup) reader(p *Parser) callReader {
	return &glmReader{argumentWriter: argumentWriter{parser: p}}
}

// glmReader reads calls.
type glmReader struct {
	argumentWriter
	state   glmState
	name    string            // of the argument
	member  jsonschema.Member // what the schema says about it
	raw     bool              // it is passed on as it comes, as a string
	dropped bool              // the argument occurred before
	buffer  strings.Builder
}

type glmState int

const (
	glmBetween glmState = iota // between calls
	glmInCall                  // between arguments
	glmInKey
	glmAfterKey
	glmInValue
)

// glmFollow are the tags that count in a state: in a key and in a value only its end.
var glmFollow = [...][]string{glmInCall: {glmKey, glmCallEnd}, glmInKey: {glmKeyEnd}, glmAfterKey: {glmValue, glmKey, glmCallEnd}, glmInValue: {glmValueEnd}}

// begin implements callReader.
func (r *glmReader) begin(name string, d *Delta) {
	r.argumentWriter.begin(name, d)
	r.state = glmInCall
}

// step implements callReader.
func (r *glmReader) step(s string, d *Delta) (n int, done bool) {
	if n := strings.IndexByte(s, '<'); n != 0 {
		if n < 0 {
			n = len(s)
		}
		r.text(s[:n], d)
		return n, false
	}
	if r.state == glmBetween {
		return r.next(s, d), false
	}
	more := false
	for _, mark := range glmFollow[r.state] {
		if strings.HasPrefix(s, mark) {
			r.mark(mark, d)
			return len(mark), false
		}
		more = more || strings.HasPrefix(mark, s)
	}
	if more {
		return 0, false
	}
	r.text("<", d)
	return 1, false
}

// next looks for another call at the start of s.
func (r *glmReader) next(s string, d *Delta) int {
	n, name, more := glmMarkup{}.header(s, r.parser.known)
	switch {
	case n > 0:
		r.begin(name, d)
		return n
	case more:
		return 0
	}
	return 1
}

// mark handles a tag.
func (r *glmReader) mark(mark string, d *Delta) {
	switch mark {
	case glmKey:
		r.state = glmInKey
		r.buffer.Reset()
	case glmKeyEnd:
		r.name, r.state = strings.Trim(r.buffer.String(), glmSpace), glmAfterKey
	case glmValue:
		r.state = glmInValue
		r.buffer.Reset()
		r.open(d)
	case glmValueEnd:
		r.close(d)
		r.state = glmInCall
	case glmCallEnd:
		r.finish(d)
		r.state = glmBetween
	}
}

// text handles what is not a tag.
func (r *glmReader) text(s string, d *Delta) {
	switch {
	case r.state == glmInKey && r.buffer.Len()+len(s) > maxHeader: // no key is that long
	case r.state == glmInKey, r.state == glmInValue && !r.raw:
		r.buffer.WriteString(s)
	case r.state == glmInValue && !r.dropped:
		var b strings.Builder
		escape(&b, s)
		r.parser.add(d, b.String(), false)
	}
}

// open begins a value.
func (r *glmReader) open(d *Delta) {
	r.dropped = r.seen[r.name]
	r.member = r.members.Find(r.name)
	_, isOther := r.member.Kinds()
	r.raw = !isOther || r.dropped
	if r.raw && !r.dropped {
		r.key(r.name, d)
		r.parser.add(d, `"`, false)
	}
}

// close ends a value. A text that is JSON and fits the schema is that JSON. Any other
// text is a string, and so is one that fits the schema as a string.
func (r *glmReader) close(d *Delta) {
	if r.dropped {
		return
	}
	if r.raw {
		r.parser.add(d, `"`, false)
		return
	}
	r.key(r.name, d)
	text := r.buffer.String()
	trimmed := strings.TrimSpace(text)
	isString, _ := r.member.Kinds()
	if _, quoted := unquote(trimmed); json.Valid([]byte(trimmed)) && (!isString || !quoted && r.member.Takes([]byte(trimmed))) {
		r.parser.add(d, trimmed, false)
		return
	}
	var b strings.Builder
	quote(&b, text)
	r.parser.add(d, b.String(), false)
}

// grammar implements markup.
func (glmMarkup) grammar(g *grammar, conversation *Conversation) (*c.Expr, error) {
	// The grammar has the common parts of all arguments once.
	shared := func(e *c.Expr) *c.Expr { return c.Shared("a tag of GLM", e) }
	key, middle, end := shared(g.mark(glmKey)), shared(c.Sequence(g.mark(glmKeyEnd), g.mark(glmValue))), shared(g.mark(glmValueEnd))
	one := func(name, text, json *c.Expr) *c.Expr {
		var out []*c.Expr
		for _, e := range []*c.Expr{text, json} {
			if e != nil {
				out = append(out, e)
			}
		}
		return c.Sequence(key, name, middle, c.Choice(out...), end)
	}
	free := c.Shared("text", c.Free(glmValueEnd))
	var list []*c.Expr
	for i := range conversation.Functions {
		fn := &conversation.Functions[i]
		arguments, err := fn.argumentsOneByOne(g.budget, free, one)
		if err != nil {
			return nil, schemaError(i, err)
		}
		list = append(list, c.Sequence(g.mark(glmCall), c.Literal(fn.Name), arguments, g.mark(glmCallEnd)))
	}
	return calls(c.Choice(list...), c.Empty(), conversation.Single), nil
}
