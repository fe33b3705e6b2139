package chat

import "strings"

// header implements markup.
func (j *jsonCalls) header(s string, known func(string) bool) (n int, name string, more bool) {
	rest := s
	for _, mark := range []string{j.block, j.call} {
		rest = strings.TrimLeft(rest, " \r\n")
		after, ok := strings.CutPrefix(rest, mark)
		if !ok && strings.HasPrefix(mark, rest) {
			return 0, "", true
		}
		if !ok && (mark == j.call || !strings.HasPrefix(s, j.call) && !strings.HasPrefix(j.call, s)) {
			return 0, "", false
		}
		if ok {
			rest = after
		}
	}
	name, n, more = j.name(rest)
	if more {
		return 0, "", len(s) < maxHeader
	}
	if n == 0 || !known(name) {
		return 0, "", false
	}
	return len(s) - len(rest) + n, name, false
}

// maxHeader bounds the text that is held back because it may begin a call, in bytes.
const maxHeader = 1024

// name reads the text between the marker of a call and its arguments. n is 0 if that is
// not a name.
func (j *jsonCalls) name(s string) (name string, n int, more bool) {
	head, rest, ok := strings.Cut(s, j.sep)
	if !ok {
		return "", 0, len(s) < maxHeader
	}
	name = strings.TrimSpace(head)
	if j.fence != "" { // the type comes first
		line := strings.IndexByte(rest, '\n')
		if line < 0 {
			if i := strings.IndexByte(rest, '{'); i < 0 {
				return "", 0, len(rest) < maxHeader
			} else {
				line = i
			}
		}
		name, rest = strings.TrimSpace(rest[:line]), rest[line:]
	}
	if function, ok := strings.CutPrefix(name, "functions."); ok { // functions.NAME:INDEX
		name = function
		if i := strings.LastIndexByte(name, ':'); i > 0 && strings.Trim(name[i+1:], "0123456789") == "" {
			name = name[:i]
		}
	}
	return name, len(s) - len(rest), false
}

// marked implements markup.
func (j *jsonCalls) marked(s string) bool {
	return strings.HasPrefix(s, j.block) || strings.HasPrefix(s, j.call)
}

// reader implements markup.
func (j *jsonCalls) reader(p *Parser) callReader { return &jsonReader{jsonCalls: j, parser: p} }

// jsonReader reads the calls of a block. The arguments are one JSON object; its own
// brackets show where it ends, because models forget the markers after it.
type jsonReader struct {
	*jsonCalls
	parser   *Parser
	inside   bool // in a call with arguments that have not ended
	depth    int  // of the brackets in the arguments, 0 before the first
	inString bool
	escaped  bool
}

// begin implements callReader.
func (r *jsonReader) begin(name string, d *Delta) {
	r.parser.begin(name, d)
	r.inside, r.depth = true, 0
}

// step implements callReader.
func (r *jsonReader) step(s string, d *Delta) (n int, done bool) {
	if !r.inside {
		return r.between(s, d)
	}
	if r.depth == 0 {
		i := strings.IndexAny(s, "{<")
		switch {
		case i < 0:
			return len(s), false // a fence, or the end of a line
		case s[i] == '<' && i == 0: // no arguments at all
			switch m, more := oneOf(s, r.callEnd, r.blockEnd); {
			case m != "":
				r.inside = false
				r.parser.add(d, "{}", true)
				return r.between(s, d)
			case more:
				return 0, false
			}
			return 1, false
		case i > 0:
			return i, false
		}
	}
	for i := range len(s) {
		switch c := s[i]; {
		case r.escaped:
			r.escaped = false
		case r.inString:
			r.escaped, r.inString = c == '\\', c != '"'
		case c == '"':
			r.inString = true
		case c == '{' || c == '[':
			r.depth++
		case c == '}' || c == ']':
			if r.depth--; r.depth == 0 {
				r.inside = false
				r.parser.add(d, s[:i+1], true)
				return i + 1, false
			}
		case c == '<': // not JSON: a marker, where the object was not closed
			m, more := oneOf(s[i:], r.callEnd, r.blockEnd)
			switch {
			case m == "" && !more:
				continue
			case i > 0:
				r.parser.add(d, s[:i], false)
				return i, false
			case more:
				return 0, false
			}
			r.inside = false
			return r.between(s, d)
		}
	}
	r.parser.add(d, s, false)
	return len(s), false
}

// beforeTag returns the length of the text before the first "<".
func beforeTag(s string) int {
	if n := strings.IndexByte(s, '<'); n >= 0 {
		return n
	}
	return len(s)
}

// oneOf returns the one of markers that s begins with; more means that s may become one.
func oneOf(s string, markers ...string) (marker string, more bool) {
	for _, m := range markers {
		if strings.HasPrefix(s, m) {
			return m, false
		}
		more = more || strings.HasPrefix(m, s)
	}
	return "", more
}

// between reads the text between calls.
func (r *jsonReader) between(s string, d *Delta) (n int, done bool) {
	if n := beforeTag(s); n > 0 {
		return n, false
	}
	m, more := oneOf(s, r.blockEnd, r.callEnd, r.call)
	switch {
	case m == r.blockEnd:
		return len(m), true
	case m == r.callEnd:
		return len(m), false
	case m == r.call:
		name, n, more := r.name(s[len(m):])
		switch {
		case more:
			return 0, false
		case n > 0 && r.parser.known(name):
			r.begin(name, d)
			return len(m) + n, false
		}
		return len(m), false
	case more:
		return 0, false
	}
	return 1, false
}
