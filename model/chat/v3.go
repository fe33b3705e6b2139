package chat

import (
	"fmt"
	"strings"
)

// v3 is the template of DeepSeek V2.5, V3, R1 and V3.1. Their calls are JSON between
// markers. The vendor's templates write no functions; the text that offers them is the
// one that the engines for these models agree on.
type v3 struct {
	calls   *jsonCalls
	offer   func(w *writer, functions []Function)
	results [2]string // around the results of calls; may be empty
	// answer opens an answer, old one of the history, after "<｜Assistant｜>".
	answer, chat, old []Segment
}

// segments implements template.
func (t *v3) segments(c *Conversation, _ string) ([]Segment, error) {
	w := &writer{}
	w.mark(markBOS)
	messages := c.Messages
	var texts []string
	for n := leading(messages); len(texts) < n; messages = messages[1:] {
		texts = append(texts, messages[0].Content)
	}
	w.text(strings.Join(texts, "\n\n"))
	if len(c.Functions) > 0 {
		w.text("\n\n")
		t.offer(w, c.Functions)
	}
	if c.Schema != nil {
		w.text(responseFormat(c.Schema))
	}
	w.branch()
	for i := 0; i < len(messages); i++ {
		m := &messages[i]
		last := i == len(messages)-1
		switch m.Role {
		case Assistant:
			if !w.open { // otherwise the results before it, or the question, opened it
				t.begin(w, t.old)
			}
			if m.Sampled != nil {
				w.ids(m.Sampled)
			} else {
				w.text(m.Content)
				t.calls.write(w, m.Calls, 0)
			}
			w.open = false
			if !last || c.Ending != Continue {
				w.mark(markEOS)
				w.branch()
			}
			continue
		case Tool:
			results := resultsAt(messages, i, callsBefore(messages[:i]))
			t.resultsOf(w, results)
			i += len(results) - 1
			w.open = true // the model continues at once
		default:
			w.mark(markUser)
			w.text(m.Content)
		}
		w.branch()
	}
	if c.Ending == Answer && !w.open {
		mode := t.chat
		if c.Thinking {
			mode = t.answer
		}
		t.begin(w, mode)
	}
	return w.done(), nil
}

// begin opens an answer.
func (t *v3) begin(w *writer, mode []Segment) {
	w.mark(markAssistant)
	for _, s := range mode {
		if s.Marker {
			w.mark(s.Text)
		} else {
			w.text(s.Text)
		}
	}
}

func (t *v3) resultsOf(w *writer, results []Message) {
	if t.results[0] != "" {
		w.text("Use the results below to formulate an answer to the user question unless additional information is needed.")
		w.mark(t.results[0])
	}
	for i, m := range results {
		if i > 0 {
			w.text(t.calls.between)
		}
		w.mark(markOutput)
		w.text(m.Content)
		w.mark(markOutputEnd)
	}
	if t.results[1] != "" {
		w.mark(t.results[1])
	}
}

// The markers of calls and results.
const (
	markCalls      = "<｜tool▁calls▁begin｜>"
	markCall       = "<｜tool▁call▁begin｜>"
	markSep        = "<｜tool▁sep｜>"
	markCallEnd    = "<｜tool▁call▁end｜>"
	markCallsEnd   = "<｜tool▁calls▁end｜>"
	markOutputs    = "<｜tool▁outputs▁begin｜>"
	markOutput     = "<｜tool▁output▁begin｜>"
	markOutputEnd  = "<｜tool▁output▁end｜>"
	markOutputsEnd = "<｜tool▁outputs▁end｜>"
)

var (
	v3Markers = []string{markCalls, markCall, markSep, markCallEnd, markCallsEnd}

	callsV3 = &jsonCalls{
		block: markCalls, call: markCall, sep: markSep, callEnd: markCallEnd, blockEnd: markCallsEnd, between: "\n",
		before: func(c Call, _ int) string { return "function" }, after: func(c Call) string { return c.Name + "\n```json\n" }, fence: "\n```",
	}
	callsV31 = &jsonCalls{
		block: markCalls, call: markCall, sep: markSep, callEnd: markCallEnd, blockEnd: markCallsEnd,
		before: func(c Call, _ int) string { return c.Name }, after: func(Call) string { return "" },
	}
)

// offerV3 writes the functions as the engines do for V3 and R1.
func offerV3(w *writer, functions []Function) {
	w.markup("You are a helpful assistant with tool calling capabilities. When a tool call is needed, you MUST use the following format to issue the call:\n"+
		markCalls+markCall+"function"+markSep+"FUNCTION_NAME\n```json\n{\"param1\": \"value1\", \"param2\": \"value2\"}\n```"+markCallEnd+markCallsEnd+
		"\n\nMake sure the JSON is valid.## Tools\n\n### Function\n\nYou have the following functions available:\n\n", v3Markers...)
	for i := range functions {
		w.text("\n```json\n" + functions[i].wrapped() + "\n```\n")
	}
}

// offerV31 writes them as the engines do for V3.1.
func offerV31(w *writer, functions []Function) {
	w.text("## Tools\nYou have access to the following tools:\n")
	for i := range functions {
		f := &functions[i]
		w.text(fmt.Sprintf("\n### %s\nDescription: %s\n\nParameters: %s\n", f.Name, f.Description, f.parameters()))
	}
	w.markup("\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"+
		markCalls+markCall+"tool_call_name"+markSep+"tool_call_arguments"+markCallEnd+"{{additional_tool_calls}}"+markCallsEnd+
		"\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n"+
		"- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"+
		"- For multiple tool calls, chain them directly without separators or spaces\n", v3Markers...)
}
