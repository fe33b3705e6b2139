package api

import "strings"

// splitter divides an answer into reasoning and content.
type splitter struct {
	inside bool
	held   string
}

func newSplitter(thinking bool) splitter { return splitter{inside: thinking} }

// Push takes a piece of text.
func (s *splitter) Push(text string) (reasoning, content string) {
	if !s.inside {
		return "", text
	}
	s.held += text
	if before, after, ok := strings.Cut(s.held, thinkEnd); ok {
		s.inside, s.held = false, ""
		return before, after
	}
	keep := 0
	for n := min(len(thinkEnd)-1, len(s.held)); n > 0; n-- {
		if strings.HasPrefix(thinkEnd, s.held[len(s.held)-n:]) {
			keep = n
			break
		}
	}
	reasoning = s.held[:len(s.held)-keep]
	s.held = s.held[len(s.held)-keep:]
	return reasoning, ""
}

// Flush gives what was held back.
func (s *splitter) Flush() (reasoning, content string) {
	reasoning, s.held = s.held, ""
	return reasoning, ""
}

// render lays a conversation out as token ids.
func (s *server) render(messages []message, t thinking) ([]int32, *Error) {
	var b strings.Builder
	for _, m := range messages {
		switch m.role {
		case "user", "developer":
			b.WriteString("<｜User｜>")
		case "assistant":
			b.WriteString("<｜Assistant｜></think>")
		}
		b.WriteString(m.content)
	}
	b.WriteString("<｜Assistant｜>")
	if t.on {
		b.WriteString("<think>")
	} else {
		b.WriteString("</think>")
	}
	return s.Tokenizer.Encode(b.String(), true), nil
}
