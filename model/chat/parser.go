package chat

import (
	"strings"

	"ringmaster/constraint"
)

// Delta is what a part of an answer adds. Reasoning comes before Text, and Text before
// Calls.
type Delta struct {
	Reasoning string
	Text      string
	Calls     []CallDelta
}

// CallDelta is a part of a tool call: its beginning, more of its arguments, its
// end, or several of these.
type CallDelta struct {
	Index     int    // of the call in its answer
	Name      string // at the beginning only
	Begun     bool
	Arguments string // JSON text to append
	Ended     bool
}

// Parser splits the text of an answer into reasoning, text and calls, however it is
// cut.
//
//   - Everything before the first "</think>" is reasoning; an answer that ends without it
//     is all reasoning. The markers belong to neither. An answer that begins with
//     "<think>" has reasoning, too. Later markers of these are left out.
//   - A block of calls ends the reasoning. It counts only if the first function it
//     names is offered; otherwise it is text. The newlines before a block are not part
//     of the text, and everything after a block is left out.
//   - A call that is cut off has no end: its arguments stop where the answer does.
type Parser struct {
	// StateOnly skips reading schemas, for callers that need only Reasoning and
	// Answering.
	StateOnly bool

	markup    markup
	functions map[string]*Function // nil: none are offered
	state     state
	begun     bool   // a part of the answer is known
	held      string // not decided yet
	newlines  string // newlines that may precede a block of calls
	reader    callReader
	calls     int
}

type state int

const (
	inReasoning state = iota
	inText
	inCalls
	afterCalls
)

// markup is how a format writes calls.
type markup interface {
	// header looks for the beginning of a block of calls at the start of s, up to and
	// including the name of the first function. more means that s may become one.
	header(s string, known func(name string) bool) (n int, name string, more bool)
	// grammar returns the grammar of a block of calls of the functions of a conversation.
	grammar(g *grammar, c *Conversation) (*constraint.Expr, error)
	// reader reads what follows a header.
	reader(p *Parser) callReader
	// marked reports whether s, which may be the beginning of a header, can never be
	// text.
	marked(s string) bool
}

// callReader reads a block of calls.
type callReader interface {
	// step takes some of s, which is the rest of the block so far, and adds to d. It
	// returns 0 if it needs more.
	step(s string, d *Delta) (n int, done bool)
	// begin takes the name of a function, with which the next call begins.
	begin(name string, d *Delta)
}

// Parser begins an answer to a conversation. Calls for the same conversation must not be
// concurrent; the returned parsers are independent.
func (f *Format) Parser(c *Conversation) *Parser {
	p := &Parser{markup: f.markup, state: inText}
	if f.Thinks(c.Thinking) && f.thinking != byItself && c.Ending != Continue {
		p.state = inReasoning
	}
	if len(c.Functions) > 0 && f.markup != nil {
		p.functions = map[string]*Function{}
		for i := range c.Functions {
			fn := &c.Functions[i]
			if fn.members == nil {
				fn.members = &lazyMembers{}
			}
			p.functions[fn.Name] = fn
		}
	}
	return p
}

// Reasoning reports whether what comes next belongs to the reasoning, as far as is known.
func (p *Parser) Reasoning() bool { return p.state == inReasoning }

// Answering reports whether what comes next belongs to the text of the answer, as far as
// is known. Stop strings count only there.
func (p *Parser) Answering() bool { return p.state == inText }

// Push takes the next part of the answer and returns what is certain by now.
func (p *Parser) Push(text string) Delta { return p.take(text, false) }

// Flush ends the answer and returns what was held back.
func (p *Parser) Flush() Delta { return p.take("", true) }

func (p *Parser) take(text string, final bool) (d Delta) {
	p.held += text
	for p.held != "" {
		n := p.step(&d, final)
		if n == 0 {
			break
		}
		p.held = p.held[n:]
	}
	if final {
		if p.state == inText && p.calls == 0 {
			d.Text += p.newlines
		}
		p.held, p.newlines = "", ""
	}
	return d
}

// step takes a part of what is held and returns its length, 0 if it needs more.
func (p *Parser) step(d *Delta, final bool) int {
	switch p.state {
	case afterCalls:
		return len(p.held)
	case inCalls:
		n, done := p.reader.step(p.held, d)
		if done {
			p.state = afterCalls
		}
		return n
	}
	if n := beforeTag(p.held); n > 0 {
		p.plain(p.held[:n], d)
		return n
	}
	switch mark, more := oneOf(p.held, markThink, markThinkEnd); {
	case mark != "":
		p.thinkMark(mark)
		return len(mark)
	case more && !final:
		return 0
	}
	if p.functions != nil {
		n, name, more := p.markup.header(p.held, p.known)
		switch {
		case n > 0:
			p.newlines, p.begun = "", true
			p.state, p.reader = inCalls, p.markup.reader(p)
			p.reader.begin(name, d)
			return n
		case more && !final:
			return 0
		case more && p.markup.marked(p.held):
			p.newlines = ""
			return len(p.held)
		}
	}
	p.plain("<", d)
	return 1
}

func (p *Parser) known(name string) bool { return p.functions[name] != nil }

// thinkMark handles one of the two markers of the reasoning.
func (p *Parser) thinkMark(mark string) {
	switch {
	case mark == markThinkEnd && p.state == inReasoning:
		p.state = inText
	case mark == markThink && !p.begun && p.state == inText:
		p.state = inReasoning
		p.newlines = ""
	}
	p.begun = true
}

// plain handles reasoning or text.
func (p *Parser) plain(s string, d *Delta) {
	if p.state == inReasoning {
		d.Reasoning += s
		return
	}
	if p.functions != nil || !p.begun || p.newlines != "" { // its newlines may turn out not to be text
		end := len(strings.TrimRight(p.newlines+s, "\n"))
		s = p.newlines + s
		s, p.newlines = s[:end], s[end:]
		if s == "" {
			return
		}
	}
	p.begun = true
	d.Text += s
}

// begin adds the beginning of a call and returns its index.
func (p *Parser) begin(name string, d *Delta) int {
	p.calls++
	d.Calls = append(d.Calls, CallDelta{Index: p.calls - 1, Name: name, Begun: true})
	return p.calls - 1
}

// add adds to the arguments of the last call that has begun.
func (p *Parser) add(d *Delta, arguments string, ended bool) {
	index := p.calls - 1
	if n := len(d.Calls); n == 0 || d.Calls[n-1].Index != index {
		d.Calls = append(d.Calls, CallDelta{Index: index})
	}
	c := &d.Calls[len(d.Calls)-1]
	c.Arguments += arguments
	c.Ended = c.Ended || ended
}
