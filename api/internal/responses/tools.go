package responses

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// customInput is the one parameter of a tool of type custom.
const customInput = "input"

// offer says which tool of the request a function of the model is.
type offer struct {
	kind      string // function, custom, or the kind of a clientRun
	name      string
	namespace string
}

// modelName returns the name under which the model sees a tool of a namespace, because
// two namespaces may have tools of the same name.
func (r *request) modelName(namespace, name string) string {
	if known, ok := r.names[[2]string{namespace, name}]; ok {
		return known
	}
	if namespace == "" {
		return name
	}
	return strings.TrimRight(namespace, "_") + "__" + name
}

// shortName is the length of the names that shortened makes, which other servers allow too.
const shortName = 64

// shortened cuts the name that the model would see of a tool, and ends it with a hash of
// what the client calls the tool, so that it is the same in each request.
func shortened(out, namespace, name string) string {
	hash := sha256.Sum256([]byte(namespace + "\x00" + name))
	end := "_" + hex.EncodeToString(hash[:8])
	return out[:min(len(out), shortName-len(end))] + end
}

// readTools reads "tools" of the request.
func (r *request) readTools(f *dialect.Fields) []chat.Function {
	var out []chat.Function
	f.EachObject("tools", dialect.MaxFunctions, func(_ int, o *dialect.Fields) {
		functions, t := r.readTool(o, "")
		out = append(out, functions...)
		if t != nil {
			r.tools = append(r.tools, *t)
		}
	})
	return out
}

// more returns the functions with those that an item of the input adds. A tool that is
// already offered is not added again: clients list deferred tools in both places. It looks
// tools up in maps because a body has room for 100,000 of them.
func (r *request) more(o *dialect.Fields) []chat.Function {
	out, before := r.conversation.Functions, r.tools
	if r.listed == nil {
		r.listed, r.places = map[string]bool{}, map[place]int{}
		for i := range out {
			r.listed[out[i].Name] = true
		}
		for i := range before {
			r.record(&before[i], i)
		}
	}
	r.tools = nil
	for _, fn := range r.readTools(o) {
		if !r.listed[fn.Name] {
			r.listed[fn.Name] = true
			out = append(out, fn)
		}
	}
	added := r.tools
	r.tools = before
	for i := range added {
		r.list(&added[i])
	}
	return out
}

// place is a tool of the response: its namespace, type and name.
type place [3]string

// record notes where a tool is in the list of the response, unless that has it already.
func (r *request) record(t *tool, at int) {
	if _, known := r.places[place{"", t.Type, t.Name}]; !known {
		r.places[place{"", t.Type, t.Name}] = at
	}
	for i := range t.Tools {
		r.places[place{t.Name, t.Tools[i].Type, t.Tools[i].Name}] = at
	}
}

// list adds a tool to the response, which may have it, and to a namespace of the response
// what that lacks: a client may offer more of its tools later.
func (r *request) list(t *tool) {
	at, known := r.places[place{"", t.Type, t.Name}]
	if !known {
		r.record(t, len(r.tools))
		r.tools = append(r.tools, *t)
		return
	}
	for _, inner := range t.Tools {
		key := place{t.Name, inner.Type, inner.Name}
		if _, known := r.places[key]; !known {
			r.places[key] = at
			r.tools[at].Tools = append(r.tools[at].Tools, inner)
		}
	}
}

// readTool reads a tool. It returns the functions that the model sees, and the tool as
// the response repeats it, nil for one that is not offered.
func (r *request) readTool(o *dialect.Fields, namespace string) ([]chat.Function, *tool) {
	kind := o.String("type", "")
	client := clientRunOf(kind)
	switch {
	case o.Err != nil:
		return nil, nil
	case kind == "":
		o.Missing("type")
		return nil, nil
	case kind == "namespace" && namespace == "":
		return r.namespace(o)
	case kind == "function":
		fn := dialect.FunctionOf(o, "parameters")
		t := &tool{Type: kind, Name: fn.Name, Description: fn.Description, Parameters: fn.Parameters, Strict: &fn.Strict}
		if t.Parameters == nil {
			t.Parameters = json.RawMessage("{}")
		}
		return r.offer(fn, offer{kind, fn.Name, namespace}), t
	case kind == "custom":
		fn, format := customTool(o)
		return r.offer(fn, offer{kind, fn.Name, namespace}), &tool{Type: kind, Name: fn.Name, Description: o.String("description", ""), Format: format}
	case client != nil && kind == client.kind && !client.hosted(o):
		return r.offer(client.function(o), offer{kind: kind, name: kind}), &tool{Type: kind}
	}
	r.dropped = append(r.dropped, "tool "+kind)
	return nil, nil
}

// offer records a function under the name that the model sees. One that is known keeps
// the kind of its first offer, because more leaves out the second. A name that is too
// long, or that another tool has, is shortened.
func (r *request) offer(fn chat.Function, o offer) []chat.Function {
	key := [2]string{o.namespace, o.name}
	fn.Name = r.modelName(o.namespace, o.name)
	if _, known := r.names[key]; known {
		return []chat.Function{fn}
	}
	if _, taken := r.offers[fn.Name]; taken || !chat.IsName(fn.Name) {
		fn.Name = shortened(fn.Name, o.namespace, o.name)
	}
	r.offers[fn.Name], r.names[key] = o, fn.Name
	return []chat.Function{fn}
}

// namespace reads a tool that groups others, such as those of an MCP server. What it says
// about all of them precedes the description of the first.
func (r *request) namespace(o *dialect.Fields) (out []chat.Function, _ *tool) {
	t := &tool{Type: "namespace", Name: o.String("name", ""), Description: o.String("description", "")}
	if o.Err == nil && !chat.IsName(t.Name) {
		o.Fail(dialect.Invalid(o.Path+"name", "invalid_value", "'%sname' is not the name of a namespace: '%s'.", o.Path, dialect.Excerpt(json.RawMessage(t.Name))))
	}
	o.EachObject("tools", dialect.MaxFunctions, func(_ int, member *dialect.Fields) {
		functions, inner := r.readTool(member, t.Name)
		out = append(out, functions...)
		if inner != nil {
			t.Tools = append(t.Tools, *inner)
		}
	})
	if len(out) == 0 {
		return nil, nil
	}
	if t.Description != "" {
		out[0].Description = strings.TrimSpace(t.Name + ": " + t.Description + "\n\n" + out[0].Description)
	}
	return out, t
}

// customTool reads a tool that takes any text as input, with its format. The model sees
// the tool's grammar, if it has one, as it is.
func customTool(o *dialect.Fields) (chat.Function, json.RawMessage) {
	fn := dialect.FunctionOf(o, "-")
	raw := bytes.Clone(o.Get("format"))
	format := o.Object("format")
	if definition := format.String("definition", ""); definition != "" {
		fn.Description += "\n\nThe input must follow this grammar (" + format.String("syntax", "") + "):\n" + definition
	}
	o.Adopt(format)
	fn.Parameters = json.RawMessage(`{"type": "object", "properties": {"` + customInput + `": {"type": "string"}}, "required": ["` + customInput + `"], "additionalProperties": false}`)
	return fn, raw
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
		case "function", "custom", "local_shell", "shell", "apply_patch", "tool_search":
			choice, names = "required", r.index().named(o)
			c.Single = true
		case "allowed_tools":
			choice = o.String("mode", "auto")
			index, before := r.index(), map[place]bool{}
			o.EachObject("tools", dialect.MaxFunctions, func(_ int, t *dialect.Fields) {
				at := place{t.String("namespace", ""), t.String("type", ""), t.String("name", "")}
				if !before[at] {
					before[at] = true
					names = append(names, index.named(t)...)
				}
			})
			if choice != "auto" && choice != "required" {
				o.Fail(dialect.Invalid("tool_choice.mode", "invalid_value", "'tool_choice.mode' must be auto or required, not '%s'.", dialect.Excerpt(json.RawMessage(choice))))
			}
		default:
			if o.Err == nil && f.Err == nil {
				o.Fail(dialect.Unsupported("tool_choice.type", "'tool_choice.type' must be function, custom, shell, local_shell, apply_patch, tool_search or allowed_tools, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
			}
		}
		f.Adopt(o)
	}
	f.Choose(c, choice, names...)
}

// choices finds the functions that a choice may mean, by the names of the client.
type choices struct {
	*request
	byNamespace, byName map[string][]string
}

// index returns the choices among the offered tools.
func (r *request) index() *choices {
	c := &choices{r, map[string][]string{}, map[string][]string{}}
	for i := range r.conversation.Functions {
		fn := r.conversation.Functions[i].Name
		if o := r.offers[fn]; o.namespace != "" {
			c.byNamespace[o.namespace] = append(c.byNamespace[o.namespace], fn)
		}
	}
	for fn, o := range r.offers {
		c.byName[o.name] = append(c.byName[o.name], fn)
	}
	return c
}

// named returns the functions that a choice means: that of a tool by its name, or all of
// a namespace. A tool of a namespace need not be named with it if no other has its name.
func (c *choices) named(o *dialect.Fields) []string {
	kind, name, namespace := o.String("type", ""), o.String("name", ""), o.String("namespace", "")
	if kind == "namespace" {
		if found := c.byNamespace[name]; found != nil {
			return found
		}
	}
	if clientRunOf(kind) != nil {
		return []string{kind}
	}
	if _, known := c.offers[name]; namespace != "" || known {
		return []string{c.modelName(namespace, name)}
	}
	if found := c.byName[name]; len(found) == 1 {
		return found
	}
	return []string{name}
}

// offered returns the tools that are offered to the model: tool_choice may leave out
// some.
func (r *request) offered() []tool {
	has := map[offer]bool{}
	for i := range r.conversation.Functions {
		has[r.offers[r.conversation.Functions[i].Name]] = true
	}
	out := []tool{}
	for _, t := range r.tools {
		if t.Type != "namespace" {
			if clientRunOf(t.Type) != nil && has[offer{kind: t.Type, name: t.Type}] || has[offer{kind: t.Type, name: t.Name}] {
				out = append(out, t)
			}
			continue
		}
		t.Tools = slices.DeleteFunc(slices.Clone(t.Tools), func(inner tool) bool { return !has[offer{inner.Type, inner.Name, t.Name}] })
		if len(t.Tools) > 0 {
			out = append(out, t)
		}
	}
	return out
}
