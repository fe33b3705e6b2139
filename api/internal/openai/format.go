package openai

import (
	"bytes"
	"encoding/json"

	"ringmaster/api/dialect"
)

// parseFormat reads "response_format" and the fields of other servers in its place. shown
// is the schema to show to the model, nil for none.
func parseFormat(f *dialect.Fields) (form *dialect.Form, shown json.RawMessage) {
	form = dialect.Forms(f)
	if !f.Has("response_format") {
		return form, nil
	}
	o := f.Object("response_format")
	defer f.Adopt(o)
	switch kind := o.String("type", ""); kind {
	case "text":
		return form, nil
	case "json_object":
		form, shown = dialect.ObjectForm(), json.RawMessage(`{"type": "json_object"}`)
		if raw := o.Get("schema"); raw != nil { // llama.cpp's and Together's
			return schema(o, "schema", raw)
		}
		return form, shown
	case "json_schema":
		d := o.Object("json_schema")
		defer o.Adopt(d)
		raw := d.Get("schema")
		if raw == nil {
			d.Missing("schema")
			return nil, nil
		}
		return schema(d, "schema", raw)
	case "":
		o.Missing("type")
	default:
		o.Fail(dialect.Unsupported("response_format.type", "'response_format.type' must be text, json_object or json_schema, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
	}
	return nil, nil
}

// schema returns the form of a JSON schema.
func schema(o *dialect.Fields, name string, raw json.RawMessage) (*dialect.Form, json.RawMessage) {
	if kind := dialect.KindOf(raw); kind != "object" {
		o.WrongType(name, "a JSON schema, which is an object", raw)
		return nil, nil
	}
	form, failed := dialect.SchemaForm(raw, o.Path+name)
	if failed != nil {
		o.Fail(failed)
	}
	return form, bytes.Clone(raw)
}
