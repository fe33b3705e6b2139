package openai

import (
	"encoding/json"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// parseTools reads "tools", "tool_choice" and "parallel_tool_calls".
func parseTools(s *dialect.Service, f *dialect.Fields, c *chat.Conversation) {
	c.Functions = s.Functions(f)
	c.Single = !f.Bool("parallel_tool_calls", true)
	raw := f.Get("tool_choice")
	choice, names := "auto", []string(nil)
	switch {
	case raw == nil:
	case dialect.KindOf(raw) == "string":
		choice = dialect.Text(raw)
		if choice != "none" && choice != "auto" && choice != "required" {
			f.Fail(dialect.Invalid("tool_choice", "invalid_value", "'tool_choice' must be none, auto, required or an object, not '%s'.", dialect.Excerpt(json.RawMessage(choice))))
		}
	case dialect.KindOf(raw) == "object":
		choice, names = toolChoice(f)
		c.Single = c.Single || choice == "required" && len(names) == 1 && f.Object("tool_choice").String("type", "") == "function"
	default:
		f.WrongType("tool_choice", "a string or an object", raw)
	}
	f.Choose(c, choice, names...)
}

// toolChoice reads a "tool_choice" that is an object: one function, or the allowed ones.
func toolChoice(f *dialect.Fields) (choice string, names []string) {
	o := f.Object("tool_choice")
	defer f.Adopt(o)
	name := func(o *dialect.Fields) {
		fn := o.Object("function")
		n := fn.String("name", "")
		if fn.Err == nil && n == "" {
			fn.Missing("name")
		}
		names = append(names, n)
		o.Adopt(fn)
	}
	switch kind := o.String("type", ""); kind {
	case "function":
		name(o)
		return "required", names
	case "allowed_tools":
		allowed := o.Object("allowed_tools")
		choice = allowed.String("mode", "auto")
		if allowed.Err == nil && choice != "auto" && choice != "required" {
			allowed.Fail(dialect.Invalid(allowed.Path+"mode", "invalid_value", "'%smode' must be auto or required, not '%s'.", allowed.Path, dialect.Excerpt(json.RawMessage(choice))))
		}
		allowed.EachObject("tools", dialect.MaxFunctions, func(_ int, t *dialect.Fields) { name(t) })
		o.Adopt(allowed)
		return choice, names
	default:
		o.Fail(dialect.Unsupported("tool_choice.type", "'tool_choice.type' must be function or allowed_tools, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
	}
	return "", nil
}

// The JSON of tool calls, in a message and in the chunks of a stream.
type (
	toolCall struct {
		Index    *int         `json:"index,omitempty"` // of a stream only
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function toolFunction `json:"function"`
	}
	toolFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
)
