package chat

import (
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
	mark, more := oneOf(s[len(head):], glmKey, glmCallEnd)
	if mark != "" {
		return name, len(head), false
	}
	return "", 0, more && len(s) < maxHeader
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
	state  glmState
	member jsonschema.Member // what the schema says about the argument
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
	if n := beforeTag(s); n > 0 {
		r.text(s[:n], d)
		return n, false
	}
	if r.state == glmBetween {
		return r.next(s, d), false
	}
	switch mark, more := oneOf(s, glmFollow[r.state]...); {
	case mark != "":
		r.mark(mark, d)
		return len(mark), false
	case more:
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
		r.member = r.members.Find(r.name)
		_, isOther := r.member.Kinds()
		r.openValue(r.name, !isOther, d)
	case glmValueEnd:
		r.closeValue(r.isJSON, d)
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
	case r.state == glmInKey:
		r.buffer.WriteString(s)
	case r.state == glmInValue:
		r.value(s, d)
	}
}

// isJSON reports whether a text that is JSON is no string: it fits the schema, and not as
// a string.
func (r *glmReader) isJSON(text string) bool {
	isString, _ := r.member.Kinds()
	_, quoted := unquote(text)
	return !isString || !quoted && r.member.Takes([]byte(text))
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
