package chat

import (
	"fmt"
	"slices"
	"strings"
)

// The markers of DeepSeek's formats. The bars are U+FF5C, the blocks U+2581.
const (
	markBOS       = "<｜begin▁of▁sentence｜>"
	markEOS       = "<｜end▁of▁sentence｜>"
	markSystem    = "<｜System｜>"
	markUser      = "<｜User｜>"
	markAssistant = "<｜Assistant｜>"
	markReminder  = "<｜latest_reminder｜>"
	markThink     = "<think>"
	markThinkEnd  = "</think>"
	markDSML      = "｜DSML｜"
)

// dsml is the template of DeepSeek V3.2, V4 and V4.1. Their calls are in DSML, a markup
// of their own.
//
// It writes what the models' own renderers write:
//   - Consecutive user messages become one, with an empty line between them. So do
//     results of calls, which are in the user's turn and in the order of the calls
//     (V4, V4.1).
//   - In thinking mode the reasoning of assistants before the last question (of
//     a user or developer) is left out, and so are developer messages before it,
//     unless functions are offered.
//   - "<｜Assistant｜>" and the marker of the mode follow a question that an assistant,
//     a reminder or nothing follows.
//   - Functions and the schema of the answer are at the end of the first system
//     message, or in one of their own before all others.
//
// Two things are ours. If none of this has opened an answer (the last message is a system
// message or a reminder without a question), a prompt for an answer still ends with these
// two markers. The models' renderers leave them out, and the model would continue the
// instructions. And if the format has no place for a system message in the middle of a
// conversation (V3.2, V4), it becomes a part of the user's turn, because moving it to the
// front would change the beginning of the prompt, which the prefix cache has.
type dsml struct {
	names dsmlNames
	tools [2]string // the text before and after the offered functions
	v32   bool      // results have a block of their own, and old reasoning is always left out
	v41   bool      // system messages have a marker and may be anywhere
}

// dsmlNames are the names of the tags.
type dsmlNames struct{ block, invoke, parameter string }

// segments implements template.
func (d *dsml) segments(c *Conversation, effort string) ([]Segment, error) {
	messages := c.Messages
	if (len(c.Functions) > 0 || c.Schema != nil) && messages[0].Role != System {
		messages = append([]Message{{Role: System}}, messages...)
	}
	messages = d.merge(messages)
	keep := len(c.Functions) > 0 && !d.v32
	if c.Thinking && !keep {
		messages = d.dropDevelopers(messages)
	}
	w := dsmlWriter{dsml: d, thinking: c.Thinking, keep: keep, lastQuestion: d.lastQuestion(messages)}
	w.mark(markBOS)
	if !c.Thinking {
		effort = ""
	}
	if d.v41 && (effort != "" || messages[0].Role == System) {
		w.mark(markSystem)
	}
	w.text(effort)
	first, last := leading(messages), len(messages)-1
	for i := range messages {
		m := &messages[i]
		w.message(i, m)
		if i == 0 {
			w.instructions(c)
		}
		if m.Role == Assistant {
			if i == last && c.Ending == Continue {
				break
			}
			w.close()
		}
		if i >= first-1 {
			w.branch()
		}
		if d.isQuestion(i, m) && (i == last || messages[i+1].Role == Assistant || messages[i+1].Role == LatestReminder) {
			w.answer(i, m)
		}
	}
	if c.Ending == Answer && !w.open {
		w.answer(last, &messages[last])
	}
	return w.done(), nil
}

// merge joins what belongs to one turn: user messages, and the results of calls if they
// are in the user's turn.
func (d *dsml) merge(messages []Message) []Message {
	first := leading(messages)
	inTurn := func(i int) bool {
		switch messages[i].Role {
		case User:
			return true
		case Tool:
			return !d.v32
		}
		return messages[i].Role == System && i >= first && !d.v41
	}
	var out []Message
	for i := 0; i < len(messages); {
		m := messages[i]
		if d.v32 && m.Role == Tool {
			results := resultsAt(messages, i, callsBefore(out))
			out = append(out, resultBlock(results))
			i += len(results)
			continue
		}
		if !inTurn(i) {
			out = append(out, m)
			i++
			continue
		}
		n := i
		for n < len(messages) && inTurn(n) {
			n++
		}
		texts := []string{}
		for _, m := range sortResults(messages[i:n], callsBefore(out)) {
			if m.Role == Tool {
				m.Content = "<tool_result>" + m.Content + "</tool_result>"
			}
			texts = append(texts, m.Content)
		}
		out = append(out, Message{Role: User, Content: strings.Join(texts, "\n\n")}) // joined once, because otherwise the work would be quadratic
		i = n
	}
	return out
}

// resultBlock returns the block of results of V3.2.
func resultBlock(results []Message) Message {
	var b strings.Builder
	b.WriteString("\n\n<function_results>")
	for _, m := range results {
		b.WriteString("\n<result>" + m.Content + "</result>")
	}
	b.WriteString("\n</function_results>")
	return Message{Role: Tool, Content: b.String()}
}

// callsBefore returns the calls of the last message.
func callsBefore(messages []Message) []Call {
	if n := len(messages); n > 0 {
		return messages[n-1].Calls
	}
	return nil
}

// resultsAt returns the results of calls from messages[i] on, in the order of the calls.
func resultsAt(messages []Message, i int, calls []Call) []Message {
	n := i
	for n < len(messages) && messages[n].Role == Tool {
		n++
	}
	return sortResults(messages[i:n], calls)
}

// sortResults puts the results among messages in the order of the calls; other messages
// keep their places.
func sortResults(messages []Message, calls []Call) []Message {
	place := map[string]int{}
	for i, c := range calls {
		if _, twice := place[c.ID]; !twice {
			place[c.ID] = i
		}
	}
	var results []Message
	for _, m := range messages {
		if m.Role == Tool {
			results = append(results, m)
		}
	}
	if len(results) < 2 {
		return messages
	}
	for _, m := range results {
		if _, known := place[m.CallID]; !known {
			return messages
		}
	}
	slices.SortStableFunc(results, func(a, b Message) int { return place[a.CallID] - place[b.CallID] })
	out := slices.Clone(messages)
	for i := range out {
		if out[i].Role == Tool {
			out[i], results = results[0], results[1:]
		}
	}
	return out
}

// dropDevelopers removes the developer messages that the last question makes obsolete.
func (d *dsml) dropDevelopers(messages []Message) []Message {
	question := max(0, d.lastQuestion(messages))
	old := slices.DeleteFunc(slices.Clone(messages[:question]), func(m Message) bool { return m.Role == Developer })
	return append(old, messages[question:]...)
}

func (d *dsml) isQuestion(i int, m *Message) bool {
	return m.Role == User || m.Role == Developer || m.Role == Tool || d.v41 && m.Role == System && i > 0
}

// lastQuestion returns the index of the last question, -1 if there is none. A result in a
// block of its own is not a question.
func (d *dsml) lastQuestion(messages []Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if d.isQuestion(i, &messages[i]) && messages[i].Role != Tool {
			return i
		}
	}
	return -1
}

// dsmlWriter writes the messages of a conversation.
type dsmlWriter struct {
	writer
	dsml         *dsml
	thinking     bool
	keep         bool // the reasoning before the last question is written too
	lastQuestion int
}

// message writes message i without its end.
func (w *dsmlWriter) message(i int, m *Message) {
	switch m.Role {
	case System:
		if w.dsml.v41 && i > 0 {
			w.mark(markSystem)
		}
	case User:
		w.mark(markUser)
	case Developer:
		w.mark(markUser)
		if w.dsml.v32 {
			w.text("\n\n# The user's message is: ")
		}
	case LatestReminder:
		w.mark(markReminder)
	case Assistant:
		if w.thinking && (w.keep || i > w.lastQuestion) {
			w.thought(m)
		}
		if m.Sampled != nil {
			w.ids(m.Sampled)
			return
		}
	}
	w.text(m.Content)
	if len(m.Calls) > 0 {
		w.calls(m.Calls)
	}
}

// instructions writes what follows the text of the first system message.
func (w *dsmlWriter) instructions(c *Conversation) {
	if len(c.Functions) > 0 {
		w.text("\n\n")
		w.markup(w.dsml.tools[0], markDSML, markThink, markThinkEnd)
		for i := range c.Functions {
			if i > 0 {
				w.text("\n")
			}
			w.text(c.Functions[i].show(w.dsml.v41))
		}
		w.markup(w.dsml.tools[1], markDSML, markThink, markThinkEnd)
	}
	if c.Schema != nil {
		w.text(responseFormat(c.Schema))
	}
}

// calls writes a block of calls.
func (w *dsmlWriter) calls(calls []Call) {
	n := w.dsml.names
	open := func(name string, attributes string) {
		w.text("<")
		w.markup(markDSML, markDSML)
		w.text(name + attributes + ">")
	}
	end := func(name string) {
		w.text("</")
		w.markup(markDSML, markDSML)
		w.text(name + ">")
	}
	w.text("\n\n")
	open(n.block, "")
	for _, c := range calls {
		w.text("\n")
		open(n.invoke, fmt.Sprintf(" name=%q", c.Name))
		w.text("\n")
		for i, p := range parameters(c.Arguments) {
			if i > 0 {
				w.text("\n")
			}
			open(n.parameter, fmt.Sprintf(" name=\"%s\" string=\"%v\"", p.name, p.isString))
			w.text(p.text)
			end(n.parameter)
		}
		w.text("\n")
		end(n.invoke)
	}
	w.text("\n")
	end(n.block)
}

// parameter is an argument of a call in the form of DSML.
type parameter struct {
	name, text string
	isString   bool
}

// parameters returns those of a call. Arguments that are not an object become one
// parameter with their text, as in the models' own renderers.
func parameters(arguments string) []parameter {
	list, ok := members([]byte(arguments))
	for range 2 { // an object in a string, as some clients send it
		if text, isText := unquote(arguments); !ok && isText {
			arguments = text
			list, ok = members([]byte(arguments))
		}
	}
	switch {
	case !ok && strings.TrimSpace(arguments) == "":
		return nil
	case !ok:
		return []parameter{{"arguments", arguments, true}}
	}
	out := make([]parameter, len(list))
	for i, m := range list {
		out[i] = parameter{name: m.key}
		if out[i].text, out[i].isString = unquote(string(m.value)); !out[i].isString {
			out[i].text = dump(m.value)
		}
	}
	return out
}

// answer opens the answer to message i: with reasoning, unless it was dropped.
func (w *dsmlWriter) answer(i int, m *Message) {
	w.open = true
	if m.Role == Tool { // the format has no turn here
		w.text("\n\n")
	} else {
		w.mark(markAssistant)
	}
	if w.thinking && (w.keep || i >= w.lastQuestion) {
		w.mark(markThink)
		return
	}
	w.mark(markThinkEnd)
}

// close ends the assistant's message.
func (w *dsmlWriter) close() {
	w.open = false
	w.mark(markEOS)
}
