package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// clientRun is a type of tool that has no schema in the request, because Anthropic's
// models know it, and that the client runs. The type is the name and a date.
type clientRun struct{ kind, description, parameters string }

var clientRuns = []clientRun{
	{
		"bash", "Runs a command in a shell that keeps its state from call to call, and returns its output. With restart the shell begins from scratch.",
		`{"type": "object", "properties": {"command": {"type": "string"}, "restart": {"type": "boolean"}}, "additionalProperties": false}`,
	},
	{
		"text_editor", "Views and edits files: view shows a file or lists a folder, create writes a file, str_replace replaces a text that occurs exactly once, insert adds a text after a line.",
		`{"type": "object", "properties": {"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"UNDO]}, "path": {"type": "string", "description": "An absolute path."},
		"file_text": {"type": "string", "description": "Of create."}, "old_str": {"type": "string", "description": "Of str_replace."}, "new_str": {"type": "string", "description": "Of str_replaceINSERT."},
		"insert_line": {"type": "integer", "minimum": 0, "description": "Of insert: the line before the new text, 0 for the start of the file."}MEMBER,
		"view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2, "description": "Of view: the first and the last line; -1 is the end of the file."}},
		"required": ["command", "path"], "additionalProperties": false}`,
	},
	{
		"memory", "Keeps notes in files below /memories from one conversation to the next. View /memories before other work; write down what will be needed later.",
		`{"type": "object", "properties": {"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]}, "path": {"type": "string", "description": "A path below /memories; of all commands but rename."},
		"view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}, "file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
		"insert_line": {"type": "integer", "minimum": 0}, "insert_text": {"type": "string"}, "old_path": {"type": "string"}, "new_path": {"type": "string"}},
		"required": ["command"], "additionalProperties": false}`,
	},
}

// function returns the function that the model sees. The members of text editors differ
// by their dates.
func (c *clientRun) function(o *dialect.Fields, date string) chat.Function {
	undo, insert, member := "", "", `, "insert_text": {"type": "string", "description": "Of insert."}`
	if date < "20250728" {
		insert, member = " and insert", ""
	}
	if date < "20250429" {
		undo = `, "undo_edit"`
	}
	schema := strings.NewReplacer("UNDO", undo, "INSERT", insert, "MEMBER", member).Replace(c.parameters)
	fn := dialect.FunctionOf(o, "-")
	fn.Description, fn.Parameters, fn.Strict = c.description, json.RawMessage(schema), true
	return fn
}

// servers lists the beginnings of the types of tools that Anthropic's servers run, and of
// the one that shows screens, which this model cannot see.
var servers = []string{"web_search", "web_fetch", "code_execution", "tool_search", "mcp_toolset", "advisor", "computer"}

// parseTools reads "tools" and "tool_choice".
func (r *request) parseTools(f *dialect.Fields) {
	c := &r.conversation
	f.EachObject("tools", dialect.MaxFunctions, func(_ int, o *dialect.Fields) {
		kind := o.String("type", "custom")
		name, date := kind, ""
		if i := strings.LastIndexByte(kind, '_'); i > 0 {
			name, date = kind[:i], kind[i+1:]
		}
		known := slices.IndexFunc(clientRuns, func(c clientRun) bool { return c.kind == name })
		switch {
		case o.Err != nil:
		case kind == "custom" || o.Has("input_schema"):
			c.Functions = append(c.Functions, dialect.FunctionOf(o, "input_schema"))
		case known >= 0:
			c.Functions = append(c.Functions, clientRuns[known].function(o, date))
		case slices.ContainsFunc(servers, func(s string) bool { return strings.HasPrefix(kind, s) }):
			r.dropped = append(r.dropped, "tool "+kind)
		default:
			o.Fail(dialect.Unsupported(o.Path+"type", "Tools of the type '%s' are not known; give the tool an input_schema.", dialect.Excerpt(json.RawMessage(kind))))
		}
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
