package chat

import (
	"fmt"
	"strings"
)

// The markers of Kimi K2.
const (
	kimiUser      = "<|im_user|>"
	kimiAssistant = "<|im_assistant|>"
	kimiSystem    = "<|im_system|>"
	kimiMiddle    = "<|im_middle|>"
	kimiEnd       = "<|im_end|>"
	kimiCalls     = "<|tool_calls_section_begin|>"
	kimiCall      = "<|tool_call_begin|>"
	kimiArguments = "<|tool_call_argument_begin|>"
	kimiCallEnd   = "<|tool_call_end|>"
	kimiCallsEnd  = "<|tool_calls_section_end|>"
)

// kimi is the template of Kimi K2. It has no BOS. A call is named by its function and its
// number in the conversation, whatever id the client uses.
type kimi struct {
	system string // used if the conversation has no system message
	thinks bool   // the model writes "<think>" itself, and sees its reasoning again
}

var callsKimi = &jsonCalls{
	block: kimiCalls, call: kimiCall, sep: kimiArguments, callEnd: kimiCallEnd, blockEnd: kimiCallsEnd,
	before: func(c Call, index int) string { return fmt.Sprintf("functions.%s:%d", c.Name, index) }, after: func(Call) string { return "" },
}

// segments implements template.
func (k *kimi) segments(c *Conversation, _ string) ([]Segment, error) {
	w := &writer{}
	if len(c.Functions) > 0 {
		lines := make([]string, len(c.Functions))
		for i := range c.Functions {
			lines[i] = c.Functions[i].wrapped()
		}
		w.mark(kimiSystem)
		w.text("tool_declare")
		w.mark(kimiMiddle)
		w.text("[" + strings.Join(lines, ", ") + "]")
		w.mark(kimiEnd)
	}
	messages := c.Messages
	if messages[0].Role != System {
		messages = append([]Message{{Role: System, Content: k.system}}, messages...)
	}
	calls := 0                   // so far
	names := map[string]string{} // of calls by the client's ids
	lastAnswer := -1             // the last answer without calls; reasoning before it is left out
	for i := range messages {
		if messages[i].Role == Assistant && len(messages[i].Calls) == 0 {
			lastAnswer = i
		}
	}
	first := leading(messages)
	for i := range messages {
		m := &messages[i]
		k.open(w, m.Role)
		switch m.Role {
		case Assistant:
			if k.thinks {
				w.mark(markThink)
				if i > lastAnswer {
					w.thought(m)
				} else {
					w.mark(markThinkEnd)
				}
			}
			if m.Sampled != nil {
				w.ids(m.Sampled)
			} else {
				w.text(m.Content)
				callsKimi.write(w, m.Calls, calls)
			}
			for _, call := range m.Calls {
				names[call.ID] = callsKimi.before(call, calls)
				calls++
			}
			if i == len(messages)-1 && c.Ending == Continue {
				return w.done(), nil
			}
		case Tool:
			name, ok := names[m.CallID]
			if !ok {
				name = m.CallID
			}
			w.text("## Return of " + name + "\n" + m.Content)
		case System:
			w.text(m.Content)
			if c.Schema != nil && i == 0 {
				w.text(responseFormat(c.Schema))
			}
		default:
			w.text(m.Content)
		}
		w.mark(kimiEnd)
		if i >= first-1 {
			w.branch()
		}
	}
	if c.Ending == Answer {
		k.open(w, Assistant)
	}
	return w.done(), nil
}

// open begins a turn.
func (k *kimi) open(w *writer, r Role) {
	switch r {
	case Assistant:
		w.mark(kimiAssistant)
		w.text("assistant")
	case System, Developer:
		w.mark(kimiSystem)
		w.text("system")
	case Tool:
		w.mark(kimiSystem)
		w.text("tool")
	default:
		w.mark(kimiUser)
		w.text("user")
	}
	w.mark(kimiMiddle)
}
