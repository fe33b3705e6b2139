// Package highlight splits code into spans of a few classes; a page or a terminal gives
// them colours. Its work is bounded for any code: the rest of a long block, and code that
// takes too long, is plain.
package highlight

import (
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// Class is the class of a span of code: chroma's short name of the type of a token.
type Class string

// The classes. None is plain text, and everything without another class.
const (
	None      Class = ""
	Keyword   Class = "k"
	Type      Class = "nc" // classes, types, built-ins of a language
	Function  Class = "nf"
	Tag       Class = "nt" // of HTML and XML; keys of YAML and JSON
	Attribute Class = "na"
	String    Class = "s"
	Number    Class = "m" // and constants
	Comment   Class = "c"
	Inserted  Class = "gi"
	Deleted   Class = "gd"
	Heading   Class = "gh" // of a diff
)

// Classes are all except None.
var Classes = []Class{Keyword, Type, Function, Tag, Attribute, String, Number, Comment, Inserted, Deleted, Heading}

// Span is a piece of code.
type Span struct {
	Class Class
	Text  string
}

// MaxBytes is how much of a block is highlighted; the rest is plain. Between two checks
// of the deadline a lexer may try several rules, each in time by the square of what is
// left: drawn hostile code took up to 0.4 s at 8 KiB and 0.9 s at 16 KiB.
const MaxBytes = 8 << 10

// Code splits code in a language, as named at the beginning of a block of Markdown, into
// spans; the concatenated texts are the code. Beyond MaxBytes, after the deadline and in
// an unknown language all is plain. Calls may be concurrent.
func Code(language, code string, deadline time.Time) []Span {
	name, ok := languages[strings.ToLower(language)]
	if !ok || code == "" {
		return plain(nil, code)
	}
	head := code
	if len(head) > MaxBytes { // whole lines, so that no token is cut
		head = head[:MaxBytes]
		head = head[:strings.LastIndexByte(head, '\n')+1]
	}
	spans := part(name, head, deadline)
	at := 0
	for _, s := range spans {
		at += len(s.Text)
	}
	return plain(spans, code[at:])
}

// part splits the beginning of code, as far as the deadline allows.
func part(name, code string, deadline time.Time) (spans []Span) {
	defer func() {
		// The spans that a lexer found before it panicked are right.
		_ = recover()
	}()
	tokens, err := lexers.Get(name).Tokenise(&chroma.TokeniseOptions{State: "root"}, code)
	if err != nil {
		return nil
	}
	at := 0
	for token := tokens(); token != chroma.EOF; token = tokens() {
		text := token.Value
		if at+len(text) > len(code) { // some lexers add a last line feed
			text = text[:len(code)-at]
		}
		// Lexers see code as characters, so invalid UTF-8 comes out changed.
		if code[at:at+len(text)] != text || time.Now().After(deadline) {
			return spans
		}
		at += len(text)
		spans = add(spans, classOf(token.Type), text)
	}
	return spans
}

// add adds a span, or appends to the last one. White space takes the class before it.
func add(spans []Span, class Class, text string) []Span {
	if text == "" {
		return spans
	}
	if n := len(spans); n > 0 {
		last := &spans[n-1]
		if last.Class == class || last.Class == None && strings.TrimSpace(text) == "" {
			last.Text += text
			return spans
		}
	}
	return append(spans, Span{class, text})
}

func plain(spans []Span, text string) []Span { return add(spans, None, text) }

// classOf returns the class of chroma's type of a token.
func classOf(t chroma.TokenType) Class {
	switch t {
	case chroma.KeywordConstant, chroma.NameConstant:
		return Number
	case chroma.KeywordType, chroma.NameClass, chroma.NameBuiltin, chroma.NameBuiltinPseudo, chroma.NameException, chroma.NameNamespace:
		return Type
	case chroma.NameFunction, chroma.NameFunctionMagic:
		return Function
	case chroma.NameTag:
		return Tag
	case chroma.NameAttribute, chroma.NameDecorator, chroma.NameEntity, chroma.NameLabel, chroma.NameProperty:
		return Attribute
	case chroma.GenericInserted:
		return Inserted
	case chroma.GenericDeleted:
		return Deleted
	case chroma.GenericHeading, chroma.GenericSubheading:
		return Heading
	case chroma.OperatorWord:
		return Keyword
	}
	switch t.Category() {
	case chroma.Keyword:
		return Keyword
	case chroma.Comment:
		return Comment
	case chroma.Literal:
		switch t.SubCategory() {
		case chroma.LiteralString:
			return String
		case chroma.LiteralNumber:
			return Number
		}
	}
	return None
}
