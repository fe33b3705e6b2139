package chat

import "fmt"

// check rejects what no format can write.
func check(c *Conversation) error {
	if len(c.Messages) == 0 {
		return invalid("messages", "the list is empty; at least one message is needed")
	}
	called, arguments := false, 0
	for i := range c.Messages {
		m := &c.Messages[i]
		called = called || len(m.Calls) > 0
		for n := range m.Calls {
			list := countMembers(m.Calls[n].Arguments)
			if arguments += list; list > maxArguments || arguments > maxAllArguments {
				return invalid(fmt.Sprintf("messages[%d].tool_calls[%d]", i, n), "it has %d arguments, %d with those before it; at most %d and %d are allowed", list, arguments, maxArguments, maxAllArguments)
			}
		}
		switch m.Role {
		case System, User, Assistant, LatestReminder:
		case Tool:
			if !called {
				return invalid(fmt.Sprintf("messages[%d].role", i), "it is the result of a tool, but no message of the assistant before it has called one")
			}
		case Developer:
			if m.Content == "" {
				return invalid(fmt.Sprintf("messages[%d].content", i), "a developer message needs a text")
			}
		default:
			return invalid(fmt.Sprintf("messages[%d].role", i), "it is %q; expected system, developer, user, assistant, tool or latest_reminder", m.Role)
		}
	}
	i := len(c.Messages) - 1
	field := fmt.Sprintf("messages[%d].role", i)
	switch assistant := c.Messages[i].Role == Assistant; {
	case c.Ending < Answer || c.Ending > Complete:
		return invalid("ending", "it is none of Answer, Continue and Complete")
	case c.Ending == Answer && assistant:
		return invalid(field, "the last message is the assistant's, so there is nothing to answer")
	case c.Ending == Continue && !assistant:
		return invalid(field, "the last message is not the assistant's, so there is nothing to continue")
	case c.Ending == Continue && len(c.Messages[i].Calls) > 0:
		return invalid(field, "the last message has called tools, so it cannot be continued before their results")
	}
	names := map[string]bool{}
	for i := range c.Functions {
		name := c.Functions[i].Name
		field := fmt.Sprintf("tools[%d].function.name", i)
		switch {
		case !IsName(name):
			return invalid(field, "it is %.80q; a name has from 1 to %d letters, digits, _, -, . and :", name, maxName)
		case names[name]:
			return invalid(field, "two functions have the name %q", name)
		}
		names[name] = true
	}
	if c.Choice == Required && len(c.Functions) == 0 {
		return invalid("tool_choice", "a call is required, but there are no functions to call")
	}
	return nil
}

// leading returns the number of system messages at the start.
func leading(messages []Message) int {
	n := 0
	for n < len(messages) && messages[n].Role == System {
		n++
	}
	return n
}

const maxName = 128

// The most arguments of one call, and of all calls of a conversation, because each takes
// far more space in a prompt than in a request.
const (
	maxArguments    = 128
	maxAllArguments = 1 << 16
)

// countMembers returns the number of members of a JSON object; for anything else some
// number that is at most its length.
func countMembers(text string) int {
	n, depth, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1:
			n++
		}
	}
	return n
}

// IsName reports whether a function may have a name. Names are restricted because they
// are part of the markup.
func IsName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxName
}
