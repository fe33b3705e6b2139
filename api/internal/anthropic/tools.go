package anthropic

import (
	"encoding/json"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// parseTools reads "tools" and "tool_choice".
func parseTools(f *dialect.Fields, c *chat.Conversation) {
	f.EachObject("tools", dialect.MaxFunctions, func(_ int, o *dialect.Fields) {
		// Tools of other types run on Anthropic's servers, or have schemas that only its
		// models know.
		if kind := o.String("type", "custom"); o.Err == nil && kind != "custom" {
			return
		}
		c.Functions = append(c.Functions, dialect.FunctionOf(o, "input_schema"))
	})
	o := f.Object("tool_choice")
	c.Single = o.Bool("disable_parallel_tool_use", false)
	choice, names := o.String("type", "auto"), []string(nil)
	switch choice {
	case "auto", "none":
	case "any":
		choice = "required"
	case "tool":
		choice, names = "required", []string{o.String("name", "")}
		c.Single = true
	default:
		o.Fail(dialect.Invalid("tool_choice.type", "invalid_value", "'tool_choice.type' must be auto, any, tool or none, not '%s'.", dialect.Excerpt(json.RawMessage(choice))))
	}
	f.Adopt(o)
	f.Choose(c, choice, names...)
}
