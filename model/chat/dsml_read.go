package chat

import (
	"slices"
	"strings"
)

// dsmlMarkup reads the calls of DSML. It also accepts variants that models have been seen
// to write: other names of the block or none, other bars, tags without the marker,
// closing tags that are missing or of another kind. All of it counts only with the name
// of an offered function.
type dsmlMarkup struct{ names dsmlNames }

// bars are the spellings of the marker in a tag.
var bars = []string{markDSML, "｜｜DSML｜｜", "|DSML|", "||DSML||", ""}

// tag is a tag of DSML.
type tag struct {
	mark       string // one of bars
	end        bool
	word       string            // "invoke", "parameter" or another
	attributes map[string]string // such as name and string
}

// maxTag bounds a tag, in bytes.
const maxTag = 512

// readTag reads a tag at the start of s, including "<". n is 0 if there is none; more
// means that one may follow.
func readTag(s string) (t tag, n int, more bool) {
	rest := s[1:]
	if after, ok := strings.CutPrefix(rest, "/"); ok {
		t.end, rest = true, after
	}
	for _, m := range bars {
		if after, ok := strings.CutPrefix(rest, m); ok {
			t.mark, rest = m, after
			break
		}
		if strings.HasPrefix(m, rest) {
			return t, 0, true
		}
	}
	rest = strings.TrimPrefix(rest, " ")
	i := 0
	for i < len(rest) && (IsName(rest[i : i+1])) {
		i++
	}
	t.word, rest = rest[:i], rest[i:]
	if rest == "" {
		return t, 0, len(s) < maxTag
	}
	if t.word == "" {
		return t, 0, false
	}
	t.attributes = map[string]string{}
	for {
		rest = strings.TrimLeft(rest, " \n")
		switch {
		case rest == "":
			return t, 0, len(s) < maxTag
		case rest[0] == '>':
			return t, len(s) - len(rest) + 1, false
		}
		key, after, ok := strings.Cut(rest, `="`)
		if !ok || !isWord(key) {
			return t, 0, !ok && len(s) < maxTag && isWord(strings.TrimRight(rest, `=`))
		}
		value, after, ok := strings.Cut(after, `"`)
		if !ok {
			return t, 0, len(s) < maxTag
		}
		t.attributes[key], rest = value, after
	}
}

func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// isInvoke reports whether a tag begins a call, and the name of the called function.
func (t *tag) isInvoke(known func(string) bool) (name string, ok bool) {
	if t.end {
		return "", false
	}
	if name, ok = t.attributes["name"]; ok && (t.word == "invoke" || t.mark != "" && t.word != "parameter") {
		return name, known(name)
	}
	return t.word, t.mark != "" && len(t.attributes) == 0 && known(t.word)
}

// header implements markup.
func (*dsmlMarkup) header(s string, known func(string) bool) (n int, name string, more bool) {
	t, n, more := readTag(s)
	if n == 0 {
		return 0, "", more
	}
	if name, ok := t.isInvoke(known); ok {
		return n, name, false
	}
	if t.end || len(t.attributes) > 0 || t.mark == "" && !slices.Contains(blockWords, t.word) {
		return 0, "", false
	}
	// This may be the tag of the block, which must be followed by a call.
	rest := strings.TrimLeft(s[n:], " \r\n\t")
	if rest == "" {
		return 0, "", len(s) < maxHeader
	}
	if rest[0] != '<' { // perhaps NAME ```json
		name, _, fenced := strings.Cut(rest, fence)
		if name = strings.TrimSpace(name); fenced && known(name) {
			return len(s) - len(rest) + strings.Index(rest, fence), name, false
		}
		return 0, "", !fenced && len(s) < maxHeader && t.mark != "" && IsName(strings.TrimSpace(strings.TrimRight(name, "`")))
	}
	inner, m, more := readTag(rest)
	if m == 0 {
		return 0, "", more && len(s) < maxHeader
	}
	if name, ok := inner.isInvoke(known); ok {
		return len(s) - len(rest) + m, name, false
	}
	return 0, "", false
}

// fence begins arguments as JSON in Markdown, which a model may write in place of
// parameters.
const fence = "```"

// blockWords are the names of blocks in the releases.
var blockWords = []string{"tool_calls", "function_calls", "calls"}

// marked implements markup.
func (*dsmlMarkup) marked(s string) bool {
	return slices.ContainsFunc(bars[:len(bars)-1], func(m string) bool { return strings.HasPrefix(s, "<"+m) })
}

// reader implements markup.
func (*dsmlMarkup) reader(p *Parser) callReader {
	return &dsmlReader{argumentWriter: argumentWriter{parser: p}}
}

// dsmlReader reads the calls of a block.
type dsmlReader struct {
	argumentWriter
	inside bool // within a call

	fenced *jsonReader // of arguments in a fence

	inValue  bool // of a parameter
	bare     bool // its tag has no marker, so its closing tag may have none
	unwrap   bool // it may be an object with all arguments
	isString bool // the model declared a string
	asString bool // it must become a string
}

// begin implements callReader.
func (r *dsmlReader) begin(name string, d *Delta) {
	r.argumentWriter.begin(name, d)
	r.inside, r.inValue = true, false
}

// step implements callReader.
func (r *dsmlReader) step(s string, d *Delta) (n int, done bool) {
	if r.fenced != nil {
		return r.fenced.step(s, d)
	}
	if r.inside && !r.inValue && len(r.seen) == 0 {
		switch trimmed := strings.TrimLeft(s, " \n"); {
		case strings.HasPrefix(trimmed, fence):
			r.fenced = &jsonReader{jsonCalls: &jsonCalls{callEnd: fence, blockEnd: "</" + markDSML, call: markCall, sep: markSep}, parser: r.parser, inside: true}
			return len(s) - len(trimmed) + len(fence), false
		case trimmed != "" && strings.HasPrefix(fence, trimmed):
			return 0, false
		}
	}
	if n := beforeTag(s); n > 0 { // text, or space between tags
		r.text(s[:n], d)
		return n, false
	}
	t, n, more := readTag(s)
	if r.inValue && !r.bounds(&t, n) {
		if n == 0 && more && r.mayBound(s) {
			return 0, false
		}
		r.text("<", d)
		return 1, false
	}
	switch {
	case n == 0 && more:
		return 0, false
	case n == 0:
		return 1, false
	case t.end:
		return n, r.closed(t.word, d)
	}
	if r.inValue { // its closing tag is missing
		r.end(d)
	}
	if t.word == "parameter" {
		r.open(&t, d)
		return n, false
	}
	if name, ok := t.isInvoke(r.parser.known); ok {
		r.close(d)
		r.begin(name, d)
	}
	return n, false
}

// bounds reports whether a tag of n bytes ends the current value.
func (r *dsmlReader) bounds(t *tag, n int) bool {
	switch {
	case n == 0:
		return false
	case t.mark == "" && (!r.bare || !t.end):
		return false
	case t.end:
		return t.mark != "" || t.word == "parameter" || t.word == "invoke"
	}
	_, invoke := t.isInvoke(r.parser.known)
	return invoke || t.word == "parameter"
}

// mayBound reports whether s may become a tag that ends the current value.
func (r *dsmlReader) mayBound(s string) bool {
	for _, start := range []string{"<", "</"} {
		for _, m := range bars {
			if m == "" && (!r.bare || start == "<") {
				continue
			}
			if strings.HasPrefix(start+m, s) || strings.HasPrefix(s, start+m) {
				return true
			}
		}
	}
	return false
}

// closed handles a closing tag; any kind ends at least what is open. done is set for that
// of the block.
func (r *dsmlReader) closed(word string, d *Delta) (done bool) {
	if r.inValue {
		r.end(d)
	}
	if word == "parameter" {
		return false
	}
	r.close(d)
	return word != "invoke" && word != "inv"
}

// close ends the call.
func (r *dsmlReader) close(d *Delta) {
	if !r.inside {
		return
	}
	r.inside = false
	r.finish(d)
}

// open begins a parameter.
func (r *dsmlReader) open(t *tag, d *Delta) {
	if !r.inside {
		return
	}
	name := t.attributes["name"]
	r.inValue, r.bare = true, t.mark == ""
	member := r.members.Find(name)
	known := member.Known
	mayBeString, mayBeOther := member.Kinds()
	said, says := t.attributes["string"]
	r.isString = said == "true" || !says && (!mayBeOther || !known)
	r.unwrap = !known && len(r.seen) == 0 && (name == "arguments" || name == "input")
	r.asString = known && !mayBeOther
	r.openValue(name, r.isString && mayBeString && !r.unwrap, d)
}

// text takes a part of a value.
func (r *dsmlReader) text(s string, d *Delta) {
	if r.inValue {
		r.value(s, d)
	}
}

// end ends a parameter. A value that is not of the type that the model or the schema
// declares is converted if possible.
func (r *dsmlReader) end(d *Delta) {
	r.inValue = false
	if list, ok := members([]byte(strings.TrimSpace(r.buffer.String()))); r.unwrap && ok {
		for _, m := range list {
			r.key(m.key, d)
			r.parser.add(d, dump(m.value), false)
		}
		return
	}
	r.closeValue(func(value string) bool {
		_, isText := unquote(value)
		return (!r.isString || !r.unwrap) && (!r.asString || isText)
	}, d)
}
