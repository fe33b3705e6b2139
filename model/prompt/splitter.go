package prompt

import (
	"bytes"
	"strings"
)

// Splitter parts the text that a model writes into reasoning and content,
// however the text is cut. In thinking mode all before the first "</think>" is
// reasoning, the marker belongs to neither, and an answer that ends without it
// is all reasoning. In chat mode all is content.
type Splitter struct {
	reasoning bool   // still before the marker
	held      string // what may be the beginning of the marker

	// The tokens run ahead of the text, which the engine holds back where it
	// may become a stop string.
	thinks bool   // the next token is before the end of the marker
	tail   []byte // the last bytes of the tokens, which may begin the marker
}

// NewSplitter begins an answer to a prompt with or without Options.Thinking.
func NewSplitter(thinking bool) *Splitter { return &Splitter{reasoning: thinking, thinks: thinking} }

// Push takes the next part of the answer and gives what is certain by now.
func (s *Splitter) Push(text string) (reasoning, content string) {
	if !s.reasoning {
		return "", text
	}
	text = s.held + text
	s.held = ""
	if before, after, ok := strings.Cut(text, markThinkEnd); ok {
		s.reasoning = false
		return before, after
	}
	for n := min(len(text), len(markThinkEnd)-1); n > 0; n-- {
		if strings.HasSuffix(text, markThinkEnd[:n]) {
			s.held = text[len(text)-n:]
			return text[:len(text)-n], ""
		}
	}
	return text, ""
}

// Flush ends the answer and gives what was held back: reasoning that only
// looked like the beginning of the marker.
func (s *Splitter) Flush() (reasoning, content string) {
	reasoning, s.held = s.held, ""
	return reasoning, ""
}

// Token takes the next token of the answer, by its name and its bytes, and reports
// whether it belongs to the reasoning; the end marker does. The marker is usually
// one token; its bytes are searched for as well, because not every vocabulary has
// it.
func (s *Splitter) Token(name string, text []byte) bool {
	if !s.thinks {
		return false
	}
	s.tail = append(s.tail, text...)
	if name == markThinkEnd || bytes.Contains(s.tail, []byte(markThinkEnd)) {
		s.thinks = false
	}
	if keep := len(markThinkEnd) - 1; len(s.tail) > keep {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-keep:]...)
	}
	return true
}
