package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"

	c "ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
)

// Grammar returns what an answer to a conversation may be: reasoning as the format has
// it, then answer, or any text and calls of the offered functions. Calls are in the exact
// markup of the format with arguments that fit their schemas. If the schema of a function
// that is not Strict cannot be enforced as a whole, the rest of it is left out. A nil
// answer is any text. id finds the token of a marker. The result is nil if everything is
// allowed. Errors are of type *Error, or wrap the budget's.
func (f *Format) Grammar(conversation *Conversation, answer *c.Expr, id func(marker string) (int32, bool), b *c.Budget) (*c.Expr, error) {
	if len(conversation.Functions) == 0 && answer == nil {
		return nil, nil
	}
	size := 0
	for i := range conversation.Functions {
		if size += len(conversation.Functions[i].Parameters); size > maxSchemas {
			return nil, invalid("tools", "the schemas of the tools have more than %d bytes in all", maxSchemas)
		}
	}
	g := &grammar{id: id, budget: b}
	body := answer
	if len(conversation.Functions) > 0 {
		block, err := f.markup.grammar(g, conversation)
		switch {
		case err != nil:
			return nil, err
		case conversation.Choice == Required:
			body = block
		case answer != nil: // templates put blank lines before calls, and models write them
			body = c.Choice(answer, c.Sequence(c.Repeat(c.Literal("\n"), 0, 2), block))
		default:
			body = c.Sequence(c.Free(f.calls...), c.Optional(block))
		}
	}
	return c.Sequence(g.reasoning(f, conversation), body), nil
}

// grammar makes grammars for one vocabulary.
type grammar struct {
	id     func(marker string) (int32, bool)
	budget *c.Budget
}

// mark matches a marker: its token, or its text if the vocabulary has none.
func (g *grammar) mark(name string) *c.Expr {
	if id, ok := g.id(name); ok {
		return c.Special(id)
	}
	return c.Literal(name)
}

// reasoning returns the grammar of what precedes an answer.
func (g *grammar) reasoning(f *Format, conversation *Conversation) *c.Expr {
	// The end may be spelled in other tokens, because the parser accepts it then, too.
	thought := c.Sequence(c.Free(append([]string{markThinkEnd}, f.calls...)...), c.Choice(g.mark(markThinkEnd), c.Literal(markThinkEnd)))
	switch {
	case conversation.Ending == Continue || !f.Thinks(conversation.Thinking):
		return c.Empty()
	case f.thinking == byItself:
		return c.Optional(c.Sequence(g.mark(markThink), thought))
	}
	return thought
}

// calls matches one or several calls, with between in between.
func calls(call *c.Expr, between *c.Expr, single bool) *c.Expr {
	if single {
		return call
	}
	return c.Sequence(call, c.Repeat(c.Sequence(between, call), 0, maxCalls-1))
}

// maxSchemas bounds the schemas of all functions, in bytes.
const maxSchemas = 1 << 20

// maxCalls bounds the calls of an answer.
const maxCalls = 128

// schemaError is an error about the schema of function i.
func schemaError(i int, err error) error {
	if errors.Is(err, c.ErrTooMuchWork) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("tools[%d].function.parameters: %w", i, err)
	}
	return unsupported(fmt.Sprintf("tools[%d].function.parameters", i), "with \"strict\" every keyword must be enforced: %v", err)
}

// grammar implements markup.
func (j *jsonCalls) grammar(g *grammar, conversation *Conversation) (*c.Expr, error) {
	var list []*c.Expr
	for i := range conversation.Functions {
		fn := &conversation.Functions[i]
		arguments, err := fn.arguments(g.budget)
		if err != nil {
			return nil, schemaError(i, err)
		}
		head := j.before(Call{Name: fn.Name}, 0)
		var before *c.Expr
		if number, ok := strings.CutSuffix(head, ":0"); ok { // functions.NAME:INDEX
			var digits c.Set
			digits.Add('0', '9')
			before = c.Sequence(c.Literal(number+":"), c.Repeat(c.Bytes(digits), 1, 4))
		} else {
			before = c.Literal(head)
		}
		list = append(list, c.Sequence(g.mark(j.call), before, g.mark(j.sep), c.Literal(j.after(Call{Name: fn.Name})), arguments, c.Literal(j.fence), g.mark(j.callEnd)))
	}
	return c.Sequence(g.mark(j.block), calls(c.Choice(list...), c.Literal(j.between), conversation.Single), g.mark(j.blockEnd)), nil
}

// arguments returns the grammar of the arguments of a function as JSON.
func (f *Function) arguments(b *c.Budget) (e *c.Expr, err error) {
	if f.Parameters == nil {
		return c.Literal("{}"), nil
	}
	f.enforced(b, func(o jsonschema.Options) error {
		e, err = jsonschema.Compile(f.Parameters, o)
		return err
	})
	if err != nil && !f.Strict && b.Err() == nil {
		return jsonschema.Object(), nil
	}
	return e, err
}

// enforced runs do with the options for the function's schema. A schema that need not be
// enforced as a whole gets a part of the budget, so that enough is left for the other
// functions.
func (f *Function) enforced(b *c.Budget, do func(jsonschema.Options) error) {
	if f.Strict {
		_ = do(jsonschema.Options{Closed: true, Budget: b})
		return
	}
	b.Attempt(func(part *c.Budget) { _ = do(jsonschema.Options{Closed: true, Lenient: true, Budget: part}) })
}

// grammar implements markup.
func (m *dsmlMarkup) grammar(g *grammar, conversation *Conversation) (*c.Expr, error) {
	var list []*c.Expr
	for i := range conversation.Functions {
		fn := &conversation.Functions[i]
		arguments, err := m.arguments(g, fn)
		if err != nil {
			return nil, schemaError(i, err)
		}
		list = append(list, c.Sequence(m.open(g, m.names.invoke+` name="`+fn.Name+`">`), arguments, c.Literal("\n"), m.end(g, m.names.invoke)))
	}
	block := c.Sequence(m.open(g, m.names.block+">"), c.Literal("\n"), calls(c.Choice(list...), c.Literal("\n"), conversation.Single), c.Literal("\n"), m.end(g, m.names.block))
	if conversation.Choice == Required {
		block = c.Sequence(c.Literal("\n\n"), block)
	}
	return block, nil
}

func (m *dsmlMarkup) open(g *grammar, rest string) *c.Expr {
	return c.Sequence(c.Literal("<"), g.mark(markDSML), c.Literal(rest))
}

func (m *dsmlMarkup) end(g *grammar, name string) *c.Expr {
	return c.Sequence(c.Literal("</"), g.mark(markDSML), c.Literal(name+">"))
}

// arguments returns the grammar of the parameters of a function, each on its line and in
// the order of the schema.
func (m *dsmlMarkup) arguments(g *grammar, fn *Function) (*c.Expr, error) {
	// The grammar has the common parts of all parameters once.
	shared := func(e *c.Expr) *c.Expr { return c.Shared("a tag of DSML", e) }
	begin := shared(c.Sequence(c.Literal("\n"), m.open(g, m.names.parameter+` name="`)))
	asText, asJSON := shared(c.Literal(`" string="true">`)), shared(c.Literal(`" string="false">`))
	end := shared(m.end(g, m.names.parameter))
	value := func(name, text, json *c.Expr) *c.Expr {
		var out []*c.Expr
		if text != nil {
			out = append(out, c.Sequence(asText, text))
		}
		if json != nil {
			out = append(out, c.Sequence(asJSON, json))
		}
		return c.Sequence(begin, name, c.Choice(out...), end)
	}
	rest, err := fn.argumentsOneByOne(g.budget, c.Shared("text", c.Free(markDSML)), value)
	if err != nil {
		return nil, err
	}
	// Without a parameter the models' renderers leave an empty line.
	return c.Sequence(rest, c.Optional(c.Literal("\n"))), nil
}
