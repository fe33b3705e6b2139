package dialect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Fields reads the members of a JSON object. Names match exactly, unknown members are
// ignored, and null means absent. Err keeps the first error and every later read returns
// its default, so that a parser needs no check on each line.
type Fields struct {
	Raw  map[string]json.RawMessage
	Path string // of the object: "" or "stream_options."
	Err  *Error
	Ctx  context.Context // of the request; of the whole body only
	// Scope is the engine.Request.CacheScope of the request; set for the whole body only.
	Scope string

	read    map[string]bool // names that were asked for
	objects []*Fields       // members that were read as objects
}

// JSONSpace is what JSON allows between values.
const JSONSpace = " \t\r\n"

// ParseObject reads one JSON object; nothing may follow it.
func ParseObject(data []byte) (*Fields, *Error) {
	if !utf8.Valid(data) {
		return nil, Invalid("", "invalid_json", "The request body is not valid UTF-8.")
	}
	if !json.Valid(data) {
		return nil, syntaxError(data)
	}
	f := &Fields{}
	data = bytes.Trim(data, JSONSpace)
	if kind := KindOf(data); kind != "object" {
		return nil, Invalid("", "invalid_json", "The request body must be a JSON object, not %s.", Article(kind))
	}
	f.ReadMembers(data, MaxMembers)
	return f, f.Err
}

// syntaxError describes what is wrong with a body that is not one JSON value.
func syntaxError(data []byte) *Error {
	dec := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	err := dec.Decode(&value)
	switch {
	case errors.Is(err, io.EOF):
		return Invalid("", "invalid_json", "The request body is empty; expected a JSON object.")
	case err != nil:
		return Invalid("", "invalid_json", "The request body is not valid JSON: %v (at byte %d).", err, dec.InputOffset())
	}
	if kind := KindOf(value); kind != "object" {
		return Invalid("", "invalid_json", "The request body must be a JSON object, not %s.", Article(kind))
	}
	rest := bytes.TrimLeft(data[dec.InputOffset():], JSONSpace)
	return Invalid("", "invalid_json", "Unexpected data after the JSON object at byte %d.", len(data)-len(rest))
}

// MaxMembers is the most members of an object of a body, except logit_bias.
const MaxMembers = 1024

// ReadMembers reads the members of an object, at most the given number. If several have
// one name, the last counts.
func (f *Fields) ReadMembers(object json.RawMessage, most int) {
	f.Raw = map[string]json.RawMessage{}
	n := 0
	for name, value := range members(object) {
		if n++; n > most {
			param := strings.TrimSuffix(f.Path, ".")
			f.Fail(Invalid(param, "too_many_items", "The object '%s' has more than %d members.", param, most))
			return
		}
		f.Raw[Text(name)] = value
	}
}

// Fail records an error unless there is an earlier one.
func (f *Fields) Fail(e *Error) {
	if f.Err == nil {
		f.Err = e
	}
}

// Forget drops the body, so that it can be freed.
func (f *Fields) Forget() { f.Raw, f.objects = nil, nil }

// Cancelled reports whether the request has ended, and records that as the error. Every
// loop over a part of the body calls it on the fields of the whole body.
func (f *Fields) Cancelled() bool {
	if f.Ctx != nil && f.Ctx.Err() != nil {
		f.Fail(ErrCancelled)
	}
	return f.Err != nil
}

// ErrCancelled ends a request after its client disconnected. Only a client that has
// closed just its sending side can read it.
var ErrCancelled = &Error{Status: StatusClientClosed, Code: "cancelled", Message: "The request was cancelled: the client closed the connection before the answer began."}

// Has reports whether a member is present and not null.
func (f *Fields) Has(name string) bool {
	if f.read == nil {
		f.read = map[string]bool{}
	}
	f.read[name] = true
	raw, ok := f.Raw[name]
	return ok && KindOf(raw) != "null"
}

// Get returns the raw member, or nil if it is absent, null or read after an
// error.
func (f *Fields) Get(name string) json.RawMessage {
	if f.Err != nil || !f.Has(name) {
		return nil
	}
	return f.Raw[name]
}

func (f *Fields) WrongType(name, want string, raw json.RawMessage) {
	param := f.Path + name
	f.Fail(Invalid(param, "invalid_type", "'%s' must be %s, not %s.", param, want, Article(KindOf(raw))))
}

// Missing records that a member is missing.
func (f *Fields) Missing(name string) {
	f.Fail(Invalid(f.Path+name, "missing_required_parameter", "'%s' is missing.", f.Path+name))
}

// Require records an error if a member is absent or null.
func (f *Fields) Require(name string) {
	if !f.Has(name) {
		f.Missing(name)
	}
}

// getOf is Get for a member that must be of a kind; want describes it to the client.
func (f *Fields) getOf(kind, name, want string) json.RawMessage {
	raw := f.Get(name)
	if raw != nil && KindOf(raw) != kind {
		f.WrongType(name, want, raw)
		return nil
	}
	return raw
}

func (f *Fields) String(name, def string) string {
	if raw := f.getOf("string", name, "a string"); raw != nil {
		return Text(raw)
	}
	return def
}

func (f *Fields) Bool(name string, def bool) bool {
	if raw := f.getOf("boolean", name, "true or false"); raw != nil {
		return raw[0] == 't'
	}
	return def
}

// Number reads a number in [lo, hi].
func (f *Fields) Number(name string, def, lo, hi float64) float64 {
	raw := f.getOf("number", name, "a number")
	if raw == nil {
		return def
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil || v < lo || v > hi { // Unmarshal fails on 1e999
		f.Fail(Invalid(f.Path+name, "out_of_range", "'%s' must be from %v to %v, not %s.", f.Path+name, lo, hi, Excerpt(raw)))
		return def
	}
	return v
}

// Integer reads an integer in [lo, hi]; 16.0 counts as one.
func (f *Fields) Integer(name string, def, lo, hi int64) int64 {
	raw := f.getOf("number", name, "an integer")
	if raw == nil {
		return def
	}
	v, ok := WholeNumber(raw)
	if !ok {
		f.Fail(Invalid(f.Path+name, "invalid_type", "'%s' must be an integer, not %s.", f.Path+name, Excerpt(raw)))
		return def
	}
	if v < lo || v > hi {
		limit := fmt.Sprintf("from %d to %d", lo, hi)
		if hi == math.MaxInt32 || hi == math.MaxInt64 {
			limit = fmt.Sprintf("at least %d", lo)
		}
		f.Fail(Invalid(f.Path+name, "out_of_range", "'%s' must be %s, not %s.", f.Path+name, limit, Excerpt(raw)))
		return def
	}
	return v
}

// Object reads a member that is an object; an absent one is empty, not nil. The caller
// must pass the result to Adopt after reading it.
func (f *Fields) Object(name string) *Fields { return f.ObjectOf(name, MaxMembers) }

// ObjectOf is Object with another limit on the number of members.
func (f *Fields) ObjectOf(name string, most int) *Fields {
	o := &Fields{Path: f.Path + name + "."}
	if raw := f.RawObject(name); raw != nil {
		o.ReadMembers(raw, most)
		f.objects = append(f.objects, o)
	}
	return o
}

// RawObject reads a member that is an object as it is written; nil if it is absent.
func (f *Fields) RawObject(name string) json.RawMessage { return f.getOf("object", name, "an object") }

// Adopt takes over the error of an object that was read from f.
func (f *Fields) Adopt(o *Fields) {
	if o.Err != nil {
		f.Fail(o.Err)
	}
}

// List reads a member that is an array of at most the given number of elements. They are
// slices of the body.
func (f *Fields) List(name string, most int) []json.RawMessage {
	raw := f.getOf("array", name, "an array")
	if raw == nil {
		return nil
	}
	n := Count(raw, most)
	if n > most {
		param := f.Path + name
		f.Fail(Invalid(param, "too_many_items", "'%s' has more than %d items; at most %d are allowed.", param, most, most))
		return nil
	}
	l := make([]json.RawMessage, 0, n)
	for _, item := range Elements(raw) {
		l = append(l, item)
	}
	return l
}

// KindOf returns the JSON type of a valid value without leading space: null, boolean,
// number, string, array or object.
func KindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// Article returns a type of KindOf with its indefinite article.
func Article(kind string) string {
	switch kind {
	case "null":
		return "null"
	case "object", "array":
		return "an " + kind
	}
	return "a " + kind
}

// Text decodes a JSON string; unpaired surrogates become U+FFFD.
func Text(raw json.RawMessage) string {
	var s string
	mustUnmarshal(raw, &s)
	return s
}

// WholeNumber decodes a JSON number that is an integer within the range of int64.
func WholeNumber(raw json.RawMessage) (int64, bool) {
	var i int64
	if json.Unmarshal(raw, &i) == nil {
		return i, true
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, false
	}
	return int64(v), true
}

// mustUnmarshal decodes a value after KindOf has confirmed its type. The document around
// it is valid JSON, so an error is a bug.
func mustUnmarshal(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("api: decoding a %s of a valid document: %T", KindOf(raw), err)) // not err: its text quotes the body
	}
}

// Excerpt returns the start of a value, short enough for an error message.
func Excerpt(raw json.RawMessage) string {
	if len(raw) <= 40 {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:40]), "") + "…"
}
