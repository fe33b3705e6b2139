package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
)

// fields reads the members of a JSON object one by one. Names are matched
// exactly, members nobody asks for are ignored, null is the same as absent. The
// first mistake is kept in err and everything after it reads as its default, so
// that a parser can be written without a check on every line.
type fields struct {
	raw  map[string]json.RawMessage
	path string // of the object: "" or "stream_options."
	err  *Error
}

// body reads a request body: the media type, the size and that it is one JSON
// object in UTF-8.
func (s *server) body(c *gin.Context) (*fields, *Error) {
	media, _, err := mime.ParseMediaType(c.GetHeader("Content-Type"))
	// Asking for the header strictly is a guard too: a web page cannot send
	// this type to another origin without asking first (CORS preflight).
	if err != nil || media != "application/json" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: fmt.Sprintf("Content-Type must be application/json, not '%s'.", c.GetHeader("Content-Type"))}
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, s.MaxBody))
	if err != nil {
		// The read deadline stays: net/http would wait for the rest of the body.
		c.Header("Connection", "close")
	} else {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{})
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large",
			Message: fmt.Sprintf("The body is larger than %d bytes.", s.MaxBody)}
	case err != nil && context.Cause(c.Request.Context()) == error(errShutdown):
		return nil, errShutdown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Status: http.StatusRequestTimeout, Code: "request_timeout",
			Message: fmt.Sprintf("The body did not arrive within %s.", s.BodyTimeout)}
	case err != nil:
		return nil, invalid("", "invalid_body", "The body could not be read: %v.", err)
	}
	return parseObject(data)
}

// parseObject reads one JSON object and nothing after it.
func parseObject(data []byte) (*fields, *Error) {
	if !utf8.Valid(data) {
		return nil, invalid("", "invalid_json", "The body is not UTF-8.")
	}
	f := &fields{}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&f.raw); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return nil, invalid("", "invalid_json", "The body must be a JSON object, not %s.", article(kind.Value))
		}
		if errors.Is(err, io.EOF) {
			return nil, invalid("", "invalid_json", "The body is empty; a JSON object is needed.")
		}
		return nil, invalid("", "invalid_json", "The body is not valid JSON: %v (at byte %d).", err, dec.InputOffset())
	}
	if f.raw == nil {
		return nil, invalid("", "invalid_json", "The body must be a JSON object, not null.")
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) != 0 {
		return nil, invalid("", "invalid_json", "Something follows the JSON object at byte %d.", len(data)-len(rest))
	}
	return f, nil
}

// fail keeps the first mistake.
func (f *fields) fail(e *Error) {
	if f.err == nil {
		f.err = e
	}
}

// has reports whether a member is there and not null.
func (f *fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && kindOf(raw) != "null"
}

// get is a member as it stands, or nil when absent, null or after a mistake.
func (f *fields) get(name string) json.RawMessage {
	if f.err != nil || !f.has(name) {
		return nil
	}
	return f.raw[name]
}

func (f *fields) wrongType(name, want string, raw json.RawMessage) {
	param := f.path + name
	f.fail(invalid(param, "invalid_type", "'%s' must be %s, not %s.", param, want, article(kindOf(raw))))
}

func (f *fields) str(name, def string) string {
	raw := f.get(name)
	if raw == nil {
		return def
	}
	if kindOf(raw) != "string" {
		f.wrongType(name, "a string", raw)
		return def
	}
	return text(raw)
}

func (f *fields) boolean(name string, def bool) bool {
	switch raw := f.get(name); {
	case raw == nil:
		return def
	case kindOf(raw) == "boolean":
		return raw[0] == 't'
	default:
		f.wrongType(name, "true or false", raw)
		return def
	}
}

// number reads a number between lo and hi, both allowed.
func (f *fields) number(name string, def, lo, hi float64) float64 {
	raw := f.get(name)
	if raw == nil {
		return def
	}
	if kindOf(raw) != "number" {
		f.wrongType(name, "a number", raw)
		return def
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil || v < lo || v > hi { // Unmarshal: 1e999
		f.fail(invalid(f.path+name, "out_of_range", "'%s' must be from %v to %v, not %s.", f.path+name, lo, hi, short(raw)))
		return def
	}
	return v
}

// integer reads a whole number between lo and hi, both allowed; 16.0 is one.
func (f *fields) integer(name string, def, lo, hi int64) int64 {
	raw := f.get(name)
	if raw == nil {
		return def
	}
	if kindOf(raw) != "number" {
		f.wrongType(name, "an integer", raw)
		return def
	}
	v, ok := wholeNumber(raw)
	if !ok {
		f.fail(invalid(f.path+name, "invalid_type", "'%s' must be an integer, not %s.", f.path+name, short(raw)))
		return def
	}
	if v < lo || v > hi {
		limit := fmt.Sprintf("from %d to %d", lo, hi)
		if hi == math.MaxInt32 || hi == math.MaxInt64 {
			limit = fmt.Sprintf("at least %d", lo)
		}
		f.fail(invalid(f.path+name, "out_of_range", "'%s' must be %s, not %s.", f.path+name, limit, short(raw)))
		return def
	}
	return v
}

// object reads a member that is an object; it is empty, not nil, when absent.
// Its mistakes must be taken over with adopt.
func (f *fields) object(name string) *fields {
	o := &fields{path: f.path + name + "."}
	raw := f.get(name)
	if raw == nil {
		return o
	}
	if kindOf(raw) != "object" {
		f.wrongType(name, "an object", raw)
		return o
	}
	mustUnmarshal(raw, &o.raw)
	return o
}

// adopt takes over the mistake of an object read out of f.
func (f *fields) adopt(o *fields) {
	if o.err != nil {
		f.fail(o.err)
	}
}

// list reads a member that is an array.
func (f *fields) list(name string) []json.RawMessage {
	raw := f.get(name)
	if raw == nil {
		return nil
	}
	if kindOf(raw) != "array" {
		f.wrongType(name, "an array", raw)
		return nil
	}
	var l []json.RawMessage
	mustUnmarshal(raw, &l)
	return l
}

// kindOf is the JSON kind of a valid value. RawMessage of a decoded document
// has no leading space.
func kindOf(raw json.RawMessage) string {
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

func article(kind string) string {
	switch kind {
	case "null":
		return "null"
	case "object", "array":
		return "an " + kind
	case "bool":
		return "a boolean"
	}
	return "a " + kind
}

// text decodes a JSON string; surrogates without a partner become U+FFFD.
func text(raw json.RawMessage) string {
	var s string
	mustUnmarshal(raw, &s)
	return s
}

// wholeNumber reads a JSON number without a fraction that an int64 holds.
func wholeNumber(raw json.RawMessage) (int64, bool) {
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

// mustUnmarshal decodes what kindOf has said to be of the right kind: the
// document as a whole has been checked, so an error is a bug.
func mustUnmarshal(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("api: %q: %v", short(raw), err))
	}
}

// short is a value cut to what belongs into a message.
func short(raw json.RawMessage) string {
	if len(raw) <= 40 {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:40]), "") + "…"
}
