package dialect

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"runtime"
	"sync"
	"time"

	"ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Form describes what the text of an answer must look like. It is parsed only when its
// grammar is made, because the request has a place and a budget by then.
type Form struct {
	key   string // tells forms apart
	param string // the field of the request, for errors
	code  string // of its errors
	make  func(*constraint.Budget) (*constraint.Expr, error)
}

// expr returns the grammar of the form. Its errors are of type *Error, or the budget's.
func (f *Form) expr(b *constraint.Budget) (*constraint.Expr, error) {
	e, err := f.make(b)
	switch {
	case err == nil && !b.Spend(e.Size()):
		return nil, b.Err()
	case err != nil && b.Err() == nil:
		return nil, Invalid(f.param, f.code, "'%s' cannot be enforced: %v.", f.param, err)
	}
	return e, err
}

// maxSchema bounds a JSON schema of a request, in bytes.
const maxSchema = 1 << 20

// SchemaForm allows JSON that fits a schema; param is the schema's place in the request.
func SchemaForm(schema json.RawMessage, param string) (*Form, *Error) {
	if len(schema) > maxSchema {
		return nil, Invalid(param, "invalid_value", "'%s' has %d bytes; at most %d are allowed.", param, len(schema), maxSchema)
	}
	return &Form{"schema " + string(schema), param, "unsupported_schema", func(b *constraint.Budget) (*constraint.Expr, error) {
		return jsonschema.Compile(schema, jsonschema.Options{Budget: b})
	}}, nil
}

// ObjectForm allows any JSON object.
func ObjectForm() *Form {
	return &Form{key: "object", make: func(*constraint.Budget) (*constraint.Expr, error) { return jsonschema.Object(), nil }}
}

// RegexpForm allows text that a regular expression matches as a whole.
func RegexpForm(pattern, param string) *Form {
	return &Form{"regexp " + pattern, param, "invalid_value", func(b *constraint.Budget) (*constraint.Expr, error) {
		return constraint.Regexp(pattern, true, constraint.Runes, b)
	}}
}

// GrammarForm allows text that fits a grammar in llama.cpp's notation.
func GrammarForm(text, param string) *Form {
	return &Form{"gbnf " + text, param, "invalid_value", func(*constraint.Budget) (*constraint.Expr, error) { return constraint.GBNF(text) }}
}

// ChoiceForm allows one of several texts.
func ChoiceForm(texts []string, param string) *Form {
	key, _ := json.Marshal(texts)
	return &Form{"choice " + string(key), param, "invalid_value", func(*constraint.Budget) (*constraint.Expr, error) {
		list := make([]*constraint.Expr, len(texts))
		for i, t := range texts {
			list[i] = constraint.Literal(t)
		}
		return constraint.Choice(list...), nil
	}}
}

// Grammars compiles the grammars of answers. It caches the most recent ones because the
// requests of a conversation have the same tools. It is safe for concurrent use.
type Grammars struct {
	tokens     Tokenizer
	limit      int64 // bytes of what is kept
	vocabulary func() *constraint.Vocabulary

	// Made, if set, is called for each grammar that a request had to make, with the
	// request's context, the time when that began, and whether it failed. Calls may be
	// concurrent.
	Made func(ctx context.Context, began time.Time, failed bool)
	Now  func() time.Time // the clock of Made

	making chan struct{} // one value for each grammar that is being made

	mu    sync.Mutex
	bytes int64
	byKey map[[sha256.Size]byte]*list.Element
	order list.List // of *kept, the last used first
}

// DefaultGrammars is a good limit for NewGrammars: the tools of some 16 agents.
const DefaultGrammars = 96 << 20

// Bytes returns the bytes of the cached grammars and their limit. A request keeps its own
// grammar as long as it runs.
func (g *Grammars) Bytes() (used, limit int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes, g.limit
}

type kept struct {
	key     [sha256.Size]byte
	grammar *constraint.Grammar
}

// maxMaking limits how many grammars are made at once, because a large one takes a
// processor and far more memory than the request that asks for it.
const maxMaking = 2

// NewGrammars makes grammars for a vocabulary and caches up to limit bytes of them. It
// makes the vocabulary's prefix tree on first use.
func NewGrammars(t Tokenizer, limit int64) *Grammars {
	// At least half of the processors stay free for the model.
	making := max(1, min(maxMaking, runtime.GOMAXPROCS(0)/2))
	return &Grammars{tokens: t, limit: limit, making: make(chan struct{}, making), vocabulary: sync.OnceValue(func() *constraint.Vocabulary { return constraint.NewVocabulary(t) }),
		byKey: map[[sha256.Size]byte]*list.Element{}}
}

// forChat returns the grammar of the answers to a conversation, nil if all is allowed.
// The error is ErrCancelled if ctx has ended.
func (g *Grammars) forChat(ctx context.Context, f *chat.Format, c *chat.Conversation, form *Form) (*constraint.Grammar, *Error) {
	if len(c.Functions) == 0 && form == nil {
		return nil, nil
	}
	h := sha256.New()
	add := func(parts ...string) {
		for _, p := range parts {
			fmt.Fprintf(h, "%d %s", len(p), p)
		}
	}
	add(f.Name, fmt.Sprint(c.Thinking, c.Ending, c.Choice, c.Single))
	for i := range c.Functions {
		fn := &c.Functions[i]
		add(fn.Name, fmt.Sprint(fn.Strict), string(fn.Parameters))
	}
	if form != nil {
		add(form.key)
	}
	param := ""
	if len(c.Functions) == 0 {
		param = form.param
	}
	return g.compile(ctx, h, param, func(b *constraint.Budget) (*constraint.Expr, error) {
		var answer *constraint.Expr
		if form != nil {
			var err error
			if answer, err = form.expr(b); err != nil {
				return nil, err
			}
		}
		return f.Grammar(c, answer, g.tokens.ID, b)
	})
}

// Constrain makes the answers to requests follow a form from their first token; nil
// allows any. The error is ErrCancelled if ctx has ended.
func (g *Grammars) Constrain(ctx context.Context, requests []engine.Request, form *Form) *Error {
	if form == nil {
		return nil
	}
	h := sha256.New()
	h.Write([]byte(form.key))
	grammar, failed := g.compile(ctx, h, form.param, form.expr)
	if failed == nil {
		g.constrain(requests, grammar)
	}
	return failed
}

// find returns a cached grammar.
func (g *Grammars) find(key [sha256.Size]byte) *constraint.Grammar {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.byKey[key]
	if !ok {
		return nil
	}
	g.order.MoveToFront(at)
	return at.Value.(*kept).grammar
}

// compile finds a grammar by its key, or makes it. param is the field that the grammar
// comes from, "" for several.
func (g *Grammars) compile(ctx context.Context, h hash.Hash, param string, expr func(*constraint.Budget) (*constraint.Expr, error)) (_ *constraint.Grammar, failed *Error) {
	var key [sha256.Size]byte
	h.Sum(key[:0])
	if grammar := g.find(key); grammar != nil {
		return grammar, nil
	}
	if g.Made != nil {
		began := g.Now()
		defer func() { g.Made(ctx, began, failed != nil) }()
	}
	select {
	case g.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ErrCancelled
	}
	defer func() { <-g.making }()
	if grammar := g.find(key); grammar != nil { // another request made it meanwhile
		return grammar, nil
	}
	b := constraint.NewBudget(ctx, constraint.DefaultWork)
	e, err := expr(b)
	var grammar *constraint.Grammar
	if err == nil {
		grammar, err = constraint.Compile(e, g.vocabulary(), b)
	}
	if err != nil {
		return nil, grammarError(ctx, param, err)
	}
	g.keep(key, grammar)
	return grammar, nil
}

// grammarError translates the reason why a grammar cannot be made, for the client.
func grammarError(ctx context.Context, param string, err error) *Error {
	var own *Error
	var field *chat.Error
	switch {
	case ctx.Err() != nil:
		return ErrCancelled
	case errors.As(err, &own):
		return own
	case errors.As(err, &field):
		return Invalid(field.Field, "unsupported_schema", "'%s': %s.", field.Field, field.Message)
	}
	return Invalid(param, "unsupported_schema", "The form of the answer cannot be enforced: %v.", err)
}

// keep caches a grammar, and drops the least recently used ones beyond the limit.
func (g *Grammars) keep(key [sha256.Size]byte, grammar *constraint.Grammar) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey[key] != nil {
		return
	}
	g.byKey[key] = g.order.PushFront(&kept{key, grammar})
	for g.bytes += grammar.Bytes(); g.bytes > g.limit; {
		old := g.order.Remove(g.order.Back()).(*kept)
		delete(g.byKey, old.key)
		g.bytes -= old.grammar.Bytes()
	}
}

// constrain gives each answer to one request its own matcher, and all of them one budget
// for the work of masks; nil leaves them as they are.
func (g *Grammars) constrain(requests []engine.Request, grammar *constraint.Grammar) {
	if grammar == nil {
		return
	}
	work := constraint.NewWork()
	for i := range requests {
		requests[i].Constraint = &forcing{grammar.Matcher(g.tokens, work), g.tokens}
	}
}

// forcing is a Matcher that also guesses tokens; it implements engine.Forcer.
type forcing struct {
	*constraint.Matcher
	tokens Tokenizer
}

// forcedBytes bounds the text of a guess.
const forcedBytes = 64

// Forced implements engine.Forcer: the tokens of the text that the grammar leaves no choice
// about. The last is left out, because what follows may be part of it.
func (m *forcing) Forced(ctx context.Context) []int32 {
	text := m.Matcher.Forced(forcedBytes)
	if len(text) < 2 {
		return nil
	}
	ids, err := m.tokens.EncodeContext(ctx, string(text), false)
	if err != nil || len(ids) < 2 {
		return nil
	}
	return ids[:len(ids)-1]
}

// Forms reads the fields of servers such as vLLM and llama.cpp that constrain an answer:
// guided_json, guided_regex, guided_grammar, guided_choice, json_schema, grammar, and
// structured_outputs with json, regex, grammar and choice. It returns nil if none is
// present.
func Forms(f *Fields) *Form {
	var out *Form
	set := func(form *Form, failed *Error) {
		switch {
		case failed != nil:
			f.Fail(failed)
		case out != nil:
			f.Fail(Invalid("", "invalid_value", "Only one of the fields that constrain an answer is allowed."))
		default:
			out = form
		}
	}
	grammar := func(f *Fields, name string) {
		if text := f.String(name, ""); text != "" {
			set(GrammarForm(text, f.Path+name), nil)
		}
	}
	read := func(f *Fields, jsonName, regexpName, grammarName, choiceName string) {
		grammar(f, grammarName)
		if raw := f.Get(jsonName); raw != nil {
			set(schemaOf(f, jsonName, raw))
		}
		if f.Has(regexpName) {
			if pattern := f.String(regexpName, ""); f.Err == nil {
				set(RegexpForm(pattern, f.Path+regexpName), nil)
			}
		}
		if f.Has(choiceName) {
			var texts []string
			for i, raw := range f.List(choiceName, maxChoices) {
				if KindOf(raw) != "string" || Text(raw) == "" {
					f.Fail(Invalid(f.Path+choiceName, "invalid_type", "'%s%s[%d]' must be a string that is not empty.", f.Path, choiceName, i))
					return
				}
				texts = append(texts, Text(raw))
			}
			if f.Err == nil && len(texts) == 0 {
				f.Fail(Invalid(f.Path+choiceName, "invalid_value", "'%s%s' must have at least one text.", f.Path, choiceName))
			} else if f.Err == nil {
				set(ChoiceForm(texts, f.Path+choiceName), nil)
			}
		}
	}
	read(f, "guided_json", "guided_regex", "guided_grammar", "guided_choice")
	grammar(f, "grammar")
	if raw := f.Get("json_schema"); raw != nil {
		set(schemaOf(f, "json_schema", raw))
	}
	o := f.Object("structured_outputs")
	read(o, "json", "regex", "grammar", "choice")
	f.Adopt(o)
	return out
}

// maxChoices is the most texts of a guided_choice.
const maxChoices = 4096

// schemaOf reads a schema; some clients send it as a string.
func schemaOf(f *Fields, name string, raw json.RawMessage) (*Form, *Error) {
	switch KindOf(raw) {
	case "string":
		text := []byte(Text(raw))
		if !json.Valid(text) {
			return nil, Invalid(f.Path+name, "invalid_value", "'%s%s' is a string that is not JSON.", f.Path, name)
		}
		return SchemaForm(bytes.TrimSpace(text), f.Path+name)
	case "object", "boolean":
		return SchemaForm(raw, f.Path+name)
	}
	return nil, Invalid(f.Path+name, "invalid_type", "'%s%s' must be a JSON schema, not %s.", f.Path, name, Article(KindOf(raw)))
}
