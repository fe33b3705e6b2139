package responses

import (
	"bytes"
	"encoding/json"
	"slices"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// customInput is the one parameter of a tool of type custom.
const customInput = "input"

// hosted lists the types of tools that run on OpenAI's servers or inside its clients;
// clients send them without being asked.
var hosted = []string{
	"web_search", "web_search_preview", "image_generation", "file_search", "code_interpreter", "computer_use_preview", "mcp", "namespace",
	"tool_search", "local_shell", "shell", "apply_patch",
}

// readTools reads "tools" of a request, or of an item that adds some.
func (r *request) readTools(f *dialect.Fields) (out []chat.Function) {
	f.EachObject("tools", dialect.MaxFunctions, func(_ int, o *dialect.Fields) {
		switch kind := o.String("type", ""); {
		case o.Err != nil:
		case kind == "function":
			out = append(out, r.function(o))
		case kind == "custom":
			out = append(out, r.customTool(o))
		case kind == "":
			o.Missing("type")
		case !slices.Contains(hosted, kind):
			r.unknown = append(r.unknown, kind)
		}
	})
	return out
}

// function reads a tool of type function.
func (r *request) function(o *dialect.Fields) chat.Function {
	fn := dialect.FunctionOf(o, "parameters")
	t := tool{Type: "function", Name: fn.Name, Description: fn.Description, Parameters: fn.Parameters, Strict: &fn.Strict}
	if t.Parameters == nil {
		t.Parameters = json.RawMessage("{}")
	}
	r.tools = append(r.tools, t)
	return fn
}

// customTool reads a tool that takes any text as input. The model sees the tool's
// grammar, if it has one, as it is.
func (r *request) customTool(o *dialect.Fields) chat.Function {
	fn := dialect.FunctionOf(o, "-")
	r.tools = append(r.tools, tool{Type: "custom", Name: fn.Name, Description: fn.Description, Format: bytes.Clone(o.Get("format"))})
	format := o.Object("format")
	if definition := format.String("definition", ""); definition != "" {
		fn.Description += "\n\nThe input must follow this grammar (" + format.String("syntax", "") + "):\n" + definition
	}
	o.Adopt(format)
	fn.Parameters = json.RawMessage(`{"type": "object", "properties": {"` + customInput + `": {"type": "string"}}, "required": ["` + customInput + `"], "additionalProperties": false}`)
	r.custom[fn.Name] = true
	return fn
}

// choose reads "tool_choice" and "parallel_tool_calls".
func (r *request) choose(f *dialect.Fields) {
	c := &r.conversation
	r.parallel = f.Bool("parallel_tool_calls", true)
	c.Single = !r.parallel
	r.choice = bytes.Clone(f.Get("tool_choice"))
	choice, names := "auto", []string(nil)
	switch raw := f.Get("tool_choice"); {
	case raw == nil:
	case dialect.KindOf(raw) == "string":
		choice = dialect.Text(raw)
		if choice != "none" && choice != "auto" && choice != "required" {
			f.Fail(dialect.Invalid("tool_choice", "invalid_value", "'tool_choice' must be none, auto, required or an object, not '%s'.", dialect.Excerpt(json.RawMessage(choice))))
		}
	default:
		o := f.Object("tool_choice")
		switch kind := o.String("type", ""); kind {
		case "function", "custom":
			choice, names = "required", []string{o.String("name", "")}
			c.Single = true
		case "allowed_tools":
			choice = o.String("mode", "auto")
			o.EachObject("tools", dialect.MaxFunctions, func(_ int, t *dialect.Fields) { names = append(names, t.String("name", "")) })
			if choice != "auto" && choice != "required" {
				o.Fail(dialect.Invalid("tool_choice.mode", "invalid_value", "'tool_choice.mode' must be auto or required, not '%s'.", dialect.Excerpt(json.RawMessage(choice))))
			}
		default:
			if o.Err == nil && f.Err == nil {
				o.Fail(dialect.Unsupported("tool_choice.type", "'tool_choice.type' must be function, custom or allowed_tools, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
			}
		}
		f.Adopt(o)
	}
	f.Choose(c, choice, names...)
}

// offered returns the tools that are offered to the model: tool_choice may leave out
// some.
func (r *request) offered() []tool {
	out := []tool{}
	for _, t := range r.tools {
		if slices.ContainsFunc(r.conversation.Functions, func(f chat.Function) bool { return f.Name == t.Name }) {
			out = append(out, t)
		}
	}
	return out
}
