package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"ringmaster/model/chat"
)

// Bounds of the tools of a request.
const (
	MaxFunctions = 512
	MaxCalls     = 512 // in one message
)

// Functions reads "tools" as OpenAI's and Ollama's APIs have them: objects with "type":
// "function" and "function". It refuses tools of other types because only OpenAI's
// servers can run them.
func (s *Service) Functions(f *Fields) []chat.Function {
	var out []chat.Function
	f.EachObject("tools", MaxFunctions, func(_ int, o *Fields) {
		if kind := o.String("type", "function"); kind != "function" && o.Err == nil {
			o.Fail(Unsupported(o.Path+"type", "Tools of the type '%s' are not supported; only 'function' is.", Excerpt(json.RawMessage(kind))))
			return
		}
		if !o.Has("function") {
			o.Missing("function")
			return
		}
		d := o.Object("function")
		out = append(out, FunctionOf(d, "parameters"))
		if o.Err == nil && d.Err == nil {
			out[len(out)-1].Raw = bytes.Clone(o.Raw["function"])
		}
		o.Adopt(d)
	})
	return out
}

// FunctionOf reads the definition of a function; schema is the name of the member with
// its schema. The result does not alias the body.
func FunctionOf(d *Fields, schema string) chat.Function {
	fn := chat.Function{Name: d.String("name", ""), Description: d.String("description", ""), Strict: d.Bool("strict", false)}
	switch {
	case d.Err != nil:
	case fn.Name == "":
		d.Missing("name")
	case !chat.IsName(fn.Name):
		d.Fail(Invalid(d.Path+"name", "invalid_value", "'%sname' must have from 1 to 128 letters, digits, _, -, . and :, not '%s'.", d.Path, Excerpt(json.RawMessage(fn.Name))))
	case d.Has(schema):
		raw := d.Get(schema)
		if KindOf(raw) != "object" {
			d.WrongType(schema, "a JSON schema, which is an object", raw)
			break
		}
		if len(raw) > maxSchema {
			d.Fail(Invalid(d.Path+schema, "invalid_value", "'%s%s' has %d bytes; at most %d are allowed.", d.Path, schema, len(raw), maxSchema))
			break
		}
		fn.Parameters = bytes.Clone(raw)
		o := d.Object(schema)
		if kind := o.Raw["type"]; kind != nil && string(kind) != `"object"` && KindOf(kind) != "null" {
			o.Fail(Invalid(o.Path+"type", "invalid_value", "'%stype' must be \"object\": a function takes named arguments.", o.Path))
		}
		d.Adopt(o)
	}
	return fn
}

// CalledName returns the name of a call in the history that the prompt can have. A model
// may have called something without a name, or with one that no tool can have; the
// conversation must not end there.
func CalledName(name string) string {
	if chat.IsName(name) {
		return name
	}
	var b strings.Builder
	for _, c := range name {
		if b.Len() == maxCalledName {
			break
		}
		if s := string(c); chat.IsName(s) {
			b.WriteString(s)
		} else {
			b.WriteByte('_')
		}
	}
	return cmp.Or(b.String(), "unnamed")
}

// maxCalledName is as long as CalledName makes names, in bytes.
const maxCalledName = 64

// Choose applies the choice of a tool to a conversation: none, auto, required, or the
// name of a function. If there is nothing to choose from, none and auto do nothing.
func (f *Fields) Choose(c *chat.Conversation, choice string, names ...string) {
	if f.Err != nil {
		return
	}
	const param = "tool_choice"
	switch choice {
	case "none":
		c.Functions = nil // not even shown to the model, because it would call them
		return
	case "auto", "":
	case "required":
		c.Choice = chat.Required
	}
	if len(names) > 0 {
		known, chosen := map[string]bool{}, map[string]bool{} // a body may have many functions, and name them all
		for i := range c.Functions {
			known[c.Functions[i].Name] = true
		}
		for _, name := range names {
			chosen[name] = true
			if !known[name] {
				f.Fail(Invalid(param, "invalid_value", "'%s' names the function '%s', which is not among the tools.", param, Excerpt(json.RawMessage(name))))
				return
			}
		}
		c.Functions = slices.DeleteFunc(c.Functions, func(f chat.Function) bool { return !chosen[f.Name] })
	}
	if c.Choice == chat.Required && len(c.Functions) == 0 {
		f.Fail(Invalid(param, "invalid_value", "'%s' asks for a call, but there are no tools to call.", param))
	}
}
