package chat

import "strings"

// The markers of GLM.
const (
	glmPrefix      = "[gMASK]"
	glmStart       = "<sop>"
	glmSystem      = "<|system|>"
	glmUser        = "<|user|>"
	glmAssistant   = "<|assistant|>"
	glmObservation = "<|observation|>"
	glmCall        = "<tool_call>"
	glmCallEnd     = "</tool_call>"
	glmKey         = "<arg_key>"
	glmKeyEnd      = "</arg_key>"
	glmValue       = "<arg_value>"
	glmValueEnd    = "</arg_value>"
	glmResult      = "<tool_response>"
	glmResultEnd   = "</tool_response>"
)

// glmTags are the markers of calls and results. They are added tokens, but plain text if
// a vocabulary lacks them.
var glmTags = []string{glmCall, glmCallEnd, glmKey, glmKeyEnd, glmValue, glmValueEnd, glmResult, glmResultEnd}

// glm is the template of GLM-4.7, 4.7-Flash and 5, and with its switches of 5.1 and 5.2:
//
//	[gMASK]<sop><|system|>TOOLS<|system|>SYSTEM<|user|>QUESTION<|assistant|><think>REASONING</think>ANSWER<tool_call>...</tool_call><|observation|><tool_response>RESULT</tool_response><|assistant|><think>
//
// Only the marker of the next turn ends a turn. The reasoning of answers before the last
// question is left out; later reasoning stays as the client sent it, in chat mode too,
// since each turn may have reasoning or not. The space around answers is stripped.
//
// Source: the chat templates published with the models.
type glm struct {
	bare   bool // 5.1, 5.2: tools without "type": "function" around them and without strict; reasoning is not stripped
	closed bool // 5.2: an answer without reasoning has an empty one
}

// segments implements template.
func (g *glm) segments(c *Conversation, effort string) ([]Segment, error) {
	w := &writer{}
	w.mark(glmPrefix)
	w.mark(glmStart)
	if effort != "" && c.Thinking {
		w.mark(glmSystem)
		w.text(effort)
	}
	if len(c.Functions) > 0 {
		w.mark(glmSystem)
		g.offer(w, c.Functions)
	}
	if c.Schema != nil {
		w.mark(glmSystem)
		w.text(strings.TrimLeft(responseFormat(c.Schema), "\n"))
	}
	question := -1 // index of the last one
	for i := range c.Messages {
		if c.Messages[i].Role == User {
			question = i
		}
	}
	first := leading(c.Messages)
	if first == 0 && (len(c.Functions) > 0 || c.Schema != nil) {
		w.branch()
	}
	for i := 0; i < len(c.Messages); i++ {
		m := &c.Messages[i]
		switch m.Role {
		case Assistant:
			w.mark(glmAssistant)
			open := c.Ending == Continue && i == len(c.Messages)-1
			g.assistant(w, m, c.Thinking, i > question, open)
			if !open {
				w.branch()
			}
			continue
		case Tool:
			results := resultsAt(c.Messages, i, callsBefore(c.Messages[:i]))
			w.mark(glmObservation)
			for _, r := range results {
				w.markup(glmResult, glmTags...)
				w.text(r.Content)
				w.markup(glmResultEnd, glmTags...)
			}
			i += len(results) - 1
			w.branch()
			continue
		case System, Developer:
			w.mark(glmSystem)
		default:
			w.mark(glmUser)
		}
		w.text(m.Content)
		if i >= first-1 {
			w.branch()
		}
	}
	if c.Ending == Answer {
		w.mark(glmAssistant)
		if c.Thinking {
			w.mark(markThink)
		} else {
			g.noReasoning(w, g.closed)
		}
	}
	return w.done(), nil
}

// noReasoning writes how an answer without reasoning begins.
func (g *glm) noReasoning(w *writer, closed bool) {
	if closed {
		w.mark(markThink)
	}
	w.mark(markThinkEnd)
}

// assistant writes an answer; current is set for those after the last question, open for
// one that the model continues.
func (g *glm) assistant(w *writer, m *Message, thinking, current, open bool) {
	reasoning := *m
	if !g.bare {
		reasoning.Reasoning = strings.TrimSpace(m.Reasoning)
	}
	if current && (m.Thought != nil || m.Reasoning != "") { // reasoning of spaces counts too
		w.mark(markThink)
		w.thought(&reasoning)
	} else {
		// A model of 5.1 that should have thought and did not has written only the end.
		g.noReasoning(w, g.closed || g.bare && current && thinking)
	}
	switch {
	case m.Sampled != nil:
		w.ids(m.Sampled)
		return
	case open:
		w.text(strings.TrimLeft(m.Content, " \t\r\n"))
		return
	}
	w.text(strings.TrimSpace(m.Content))
	for _, call := range m.Calls {
		w.markup(glmCall, glmTags...)
		w.text(call.Name)
		for _, p := range parameters(call.Arguments) {
			w.markup(glmKey, glmTags...)
			w.text(p.name)
			w.markup(glmKeyEnd+glmValue, glmTags...)
			w.text(p.text)
			w.markup(glmValueEnd, glmTags...)
		}
		w.markup(glmCallEnd, glmTags...)
	}
}

// offer writes the offered functions.
func (g *glm) offer(w *writer, functions []Function) {
	w.text("\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n")
	for i := range functions {
		if g.bare {
			w.text(functions[i].showWithout("strict", "defer_loading") + "\n")
		} else {
			w.text(functions[i].wrapped() + "\n")
		}
	}
	w.markup("</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"+
		glmCall+"{function-name}"+
		glmKey+"{arg-key-1}"+glmKeyEnd+glmValue+"{arg-value-1}"+glmValueEnd+
		glmKey+"{arg-key-2}"+glmKeyEnd+glmValue+"{arg-value-2}"+glmValueEnd+"..."+glmCallEnd, glmTags...)
}
