package responses

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// clientRun is a type of tool that has no schema in the request, because OpenAI's models
// know it, and that the client runs. The model sees it as a function. Calls and results
// have item types of their own.
type clientRun struct {
	kind        string // type of the tool, and the name of the function
	call        string // type of the item of a call
	result      string // type of the item of its result
	id          string // prefix of the ids of calls
	description string
	parameters  string
	member      string // of the item of a call: the object with the arguments
	fixed       string // members of that object that are not arguments
}

// clientRuns lists these tools.
var clientRuns = []*clientRun{
	{
		kind: "local_shell", call: "local_shell_call", result: "local_shell_call_output", id: "lsh_", member: "action", fixed: `"type":"exec","env":{}`,
		description: "Runs a command on the user's machine and returns its output.",
		parameters: `{"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "The program and its arguments, such as [\"bash\", \"-lc\", \"ls\"]."},
			"working_directory": {"type": "string"}, "timeout_ms": {"type": "integer", "minimum": 1}}, "required": ["command"], "additionalProperties": false}`,
	},
	{
		kind: "shell", call: "shell_call", result: "shell_call_output", id: "sh_", member: "action",
		description: "Runs shell commands on the user's machine and returns the output of each.",
		parameters: `{"type": "object", "properties": {"commands": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Command lines of the shell."},
			"timeout_ms": {"type": "integer", "minimum": 1}, "max_output_length": {"type": "integer", "minimum": 1}}, "required": ["commands"], "additionalProperties": false}`,
	},
	{
		kind: "apply_patch", call: "apply_patch_call", result: "apply_patch_call_output", id: "apc_", member: "operation",
		description: "Creates, changes or deletes one file of the user. The diff of a new file has a + before each line. The diff of a change has hunks that begin with @@, with a space, - or + before each line. To delete a file, give no diff.",
		parameters: `{"type": "object", "properties": {"type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]}, "path": {"type": "string"}, "diff": {"type": "string"}},
			"required": ["type", "path"], "additionalProperties": false}`,
	},
	{
		kind: "tool_search", call: "tool_search_call", result: "tool_search_output", id: "tsc_", member: "arguments",
		description: "Searches further tools; those found can be called afterwards.",
		parameters:  `{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}`,
	},
}

// clientRunOf finds a type of tool by its type, or by that of its calls or results.
func clientRunOf(kind string) *clientRun {
	for _, c := range clientRuns {
		if kind == c.kind || kind == c.call || kind == c.result {
			return c
		}
	}
	return nil
}

// hosted reports whether OpenAI's servers would run the tool.
func (c *clientRun) hosted(o *dialect.Fields) bool {
	switch c.kind {
	case "shell":
		environment := o.Object("environment")
		defer o.Adopt(environment)
		return strings.HasPrefix(environment.String("type", "local"), "container")
	case "tool_search":
		return o.String("execution", "server") != "client"
	}
	return false
}

// function returns the function that the model sees. A tool of type tool_search may have
// a description and a schema of its own.
func (c *clientRun) function(o *dialect.Fields) chat.Function {
	fn := chat.Function{Name: c.kind, Description: o.String("description", c.description), Parameters: json.RawMessage(c.parameters), Strict: true}
	if raw := o.RawObject("parameters"); raw != nil {
		fn.Parameters, fn.Strict = bytes.Clone(raw), false
	}
	return fn
}

// arguments reads the arguments of a call from its item.
func (c *clientRun) arguments(o *dialect.Fields) string {
	raw := o.RawObject(c.member)
	if raw == nil {
		return "{}"
	}
	if c.fixed == "" {
		return string(raw)
	}
	var fixed, all map[string]json.RawMessage
	_ = json.Unmarshal([]byte("{"+c.fixed+"}"), &fixed) // a constant
	if json.Unmarshal(raw, &all) != nil {
		return "{}"
	}
	for name := range fixed {
		delete(all, name)
	}
	return string(dialect.Marshal(all))
}

// shape writes arguments, which are a JSON object, into the item of a call.
func (c *clientRun) shape(i *item, arguments string) {
	object := json.RawMessage(arguments)
	if c.fixed != "" {
		rest := strings.TrimLeft(strings.TrimPrefix(strings.TrimSpace(arguments), "{"), dialect.JSONSpace)
		if rest != "}" {
			rest = "," + rest
		}
		object = json.RawMessage("{" + c.fixed + rest)
	}
	switch c.member {
	case "action":
		i.Action = object
	case "operation":
		i.Operation = object
	default:
		i.Arguments, i.Execution = object, "client"
	}
}

// result returns the text of a result. The tools of a tool_search_output are offered from
// then on.
func (r *request) result(c *clientRun, o *dialect.Fields) string {
	switch c.kind {
	case "tool_search":
		before := len(r.conversation.Functions)
		r.conversation.Functions = r.more(o)
		var names []string
		for _, fn := range r.conversation.Functions[before:] {
			names = append(names, fn.Name)
		}
		if names == nil {
			return "No further tools were found."
		}
		return "These tools can be called now: " + strings.Join(names, ", ")
	case "shell":
		var texts []string
		o.TextOrObjects("output", "outputs", maxParts, func(text string) { texts = append(texts, text) }, func(p *dialect.Fields) {
			outcome := p.Object("outcome")
			texts = append(texts, p.String("stdout", "")+p.String("stderr", ""))
			switch code := outcome.Integer("exit_code", 0, -1<<31, 1<<31); {
			case outcome.String("type", "exit") == "timeout":
				texts = append(texts, "[timed out]")
			case code != 0:
				texts = append(texts, fmt.Sprintf("[exit code %d]", code))
			}
			p.Adopt(outcome)
		})
		return strings.Join(texts, "\n")
	case "apply_patch":
		text := o.String("output", "")
		if o.String("status", "completed") == "failed" {
			return "Failed: " + text
		}
		return text
	}
	return parts(o, "output")
}
