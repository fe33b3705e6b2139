package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// The markers of the format. The bars are U+FF5C, the blocks U+2581.
const (
	markBOS       = "<｜begin▁of▁sentence｜>"
	markEOS       = "<｜end▁of▁sentence｜>"
	markUser      = "<｜User｜>"
	markAssistant = "<｜Assistant｜>"
	markReminder  = "<｜latest_reminder｜>"
	markThink     = "<think>"
	markThinkEnd  = "</think>"
)

// Segments is the prompt in parts.
//
// What is written is what the model's own renderer writes:
//   - User messages that follow each other become one, with an empty line
//     between them.
//   - In thinking mode the reasoning of assistants before the last question (of
//     a user or developer) is left out, and so are developer messages before it.
//   - After a question that an assistant, a reminder or nothing follows stands
//     "<｜Assistant｜>" and the marker of the mode.
//
// One thing is ours: where nothing of this opened an answer (the last message is
// a system message or a reminder without a question), a prompt for an answer
// ends with these two markers all the same. The model's renderer leaves them
// out, and the model would go on with the instructions.
func Segments(messages []Message, o Options) ([]Segment, error) {
	effort, err := effortText(o)
	if err != nil {
		return nil, err
	}
	if err := check(messages, o.Ending); err != nil {
		return nil, err
	}
	messages = mergeUsers(messages)
	if o.Thinking {
		messages = dropReasoning(messages)
	}
	w := writer{thinking: o.Thinking, lastQuestion: lastQuestion(messages)}
	w.mark(markBOS)
	w.text(effort)
	last := len(messages) - 1
	for i, m := range messages {
		w.message(i, m)
		switch {
		case m.Role == Assistant && (i < last || o.Ending != Continue):
			w.close()
		case isQuestion(m) && (i == last || messages[i+1].Role == Assistant || messages[i+1].Role == LatestReminder):
			w.answer(i)
		}
	}
	if o.Ending == Answer && !w.open {
		w.answer(last)
	}
	w.flush()
	return w.segments, nil
}

// check finds what cannot be written.
func check(messages []Message, e Ending) error {
	if len(messages) == 0 {
		return &Error{ErrInvalid, "messages", "the list is empty; at least one message is needed"}
	}
	for i, m := range messages {
		field := fmt.Sprintf("messages[%d].role", i)
		switch m.Role {
		case System, User, Assistant, LatestReminder:
		case Developer:
			if m.Content == "" {
				return &Error{ErrInvalid, fmt.Sprintf("messages[%d].content", i), "a developer message needs a text"}
			}
		case "tool", "function":
			return &Error{ErrUnsupported, field, fmt.Sprintf("messages of the role %q are not supported", m.Role)}
		default:
			return &Error{ErrInvalid, field, fmt.Sprintf("it is %q; expected system, developer, user, assistant or latest_reminder", m.Role)}
		}
	}
	i := len(messages) - 1
	field := fmt.Sprintf("messages[%d].role", i)
	switch assistant := messages[i].Role == Assistant; {
	case e < Answer || e > Complete:
		return &Error{ErrInvalid, "ending", "it is none of Answer, Continue and Complete"}
	case e == Answer && assistant:
		return &Error{ErrInvalid, field, "the last message is the assistant's, so there is nothing to answer"}
	case e == Continue && !assistant:
		return &Error{ErrInvalid, field, "the last message is not the assistant's, so there is nothing to go on with"}
	}
	return nil
}

// mergeUsers puts user messages that follow each other together.
func mergeUsers(messages []Message) []Message {
	var out []Message
	for len(messages) > 0 {
		m, n := messages[0], 1
		if m.Role == User {
			if n = slices.IndexFunc(messages, func(m Message) bool { return m.Role != User }); n < 0 {
				n = len(messages)
			}
			texts := make([]string, n)
			for i := range texts {
				texts[i] = messages[i].Content
			}
			m.Content = strings.Join(texts, "\n\n") // once, or the work is quadratic
		}
		out = append(out, m)
		messages = messages[n:]
	}
	return out
}

// dropReasoning leaves out what is over with the last question.
func dropReasoning(messages []Message) []Message {
	question := lastQuestion(messages)
	var out []Message
	for i, m := range messages {
		if i < question {
			if m.Role == Developer {
				continue
			}
			m.Reasoning = ""
		}
		out = append(out, m)
	}
	return out
}

func isQuestion(m Message) bool { return m.Role == User || m.Role == Developer }

// lastQuestion is the index of the last question, -1 if there is none.
func lastQuestion(messages []Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if isQuestion(messages[i]) {
			return i
		}
	}
	return -1
}

// writer collects segments.
type writer struct {
	thinking     bool
	lastQuestion int
	segments     []Segment
	texts        []string // since the last marker; they become one segment
	open         bool     // an answer has been opened and not closed
}

func (w *writer) mark(s string) {
	w.flush()
	w.segments = append(w.segments, Segment{s, true})
}

// flush makes a segment of the texts since the last marker.
func (w *writer) flush() {
	if len(w.texts) > 0 {
		w.segments = append(w.segments, Segment{strings.Join(w.texts, ""), false})
		w.texts = nil
	}
}

func (w *writer) text(s string) {
	if s != "" {
		w.texts = append(w.texts, s)
	}
}

// message writes message i without what ends it.
func (w *writer) message(i int, m Message) {
	switch m.Role {
	case User, Developer:
		w.mark(markUser)
	case LatestReminder:
		w.mark(markReminder)
	case Assistant:
		if w.thinking && i > w.lastQuestion {
			w.text(m.Reasoning)
			w.mark(markThinkEnd)
		}
	}
	w.text(m.Content)
}

// answer opens the answer to message i: with reasoning, unless it was dropped.
func (w *writer) answer(i int) {
	w.open = true
	w.mark(markAssistant)
	if w.thinking && i >= w.lastQuestion {
		w.mark(markThink)
		return
	}
	w.mark(markThinkEnd)
}

// close ends the assistant's message.
func (w *writer) close() {
	w.open = false
	w.mark(markEOS)
}
