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

// fields reads the members of a JSON object. Names match exactly, unknown
// members are ignored, and null means absent. The first error is kept in err and
// every later read returns its default, so a parser needs no check on each line.
type fields struct {
	raw  map[string]json.RawMessage
	path string // of the object: "" or "stream_options."
	err  *Error
	// Of the whole body only:
	ctx   context.Context // of the request
	share *share          // of the budget for bodies
}

// body reads the request body, which must be one JSON object in UTF-8, sent as
// application/json and within the size limit and the budget. The caller must call
// release.
func (s *server) body(c *gin.Context) (*fields, *Error) {
	media, _, err := mime.ParseMediaType(c.GetHeader("Content-Type"))
	// Strictness also guards against cross-site requests: a web page cannot send
	// this media type to another origin without a CORS preflight.
	if err != nil || media != "application/json" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: fmt.Sprintf("Content-Type must be application/json, not '%s'.", c.GetHeader("Content-Type"))}
	}
	if c.Request.ContentLength > s.MaxBody {
		c.Header("Connection", "close") // the body stays unread
		return nil, s.bodyTooLarge()
	}
	part := s.bodies.open(c.Request.ContentLength)
	if part == nil {
		c.Header("Connection", "close") // the body stays unread
		return nil, s.noBudget()
	}
	keep := false
	defer func() {
		if !keep {
			part.release()
		}
	}()
	limitBody(c.Writer, c.Request, s.BodyTimeout)
	data, err := io.ReadAll(sharedReader{http.MaxBytesReader(c.Writer, c.Request.Body, s.MaxBody), part})
	if err != nil {
		// The read deadline stays set: net/http would otherwise wait for the
		// rest of the body.
		c.Header("Connection", "close")
	} else {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{})
		c.Set(bodyRead, true)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errBudget):
		return nil, s.noBudget()
	case errors.As(err, &tooLarge):
		return nil, s.bodyTooLarge()
	case err != nil && context.Cause(c.Request.Context()) == error(errShutdown):
		return nil, errShutdown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Status: http.StatusRequestTimeout, Code: "request_timeout",
			Message: fmt.Sprintf("The request body was not received within %s.", s.BodyTimeout)}
	case err != nil:
		return nil, invalid("", "invalid_body", "Could not read the request body: %v.", err)
	}
	f, failed := parseObject(data)
	if failed != nil {
		return nil, failed
	}
	keep = true
	f.ctx, f.share = c.Request.Context(), part
	return f, nil
}

// bodyTooLarge refuses a body for its length.
func (s *server) bodyTooLarge() *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large",
		Message: fmt.Sprintf("The request body exceeds %d bytes.", s.MaxBody)}
}

// noBudget refuses a body for which there is no memory now.
func (s *server) noBudget() *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
		Message: fmt.Sprintf("The bodies of the requests under way have %d bytes, which is the limit; try again later.", s.BodyBudget)}
}

// release forgets the body and gives its bytes back to the budget. It may be
// called more than once.
func (f *fields) release() {
	f.raw = nil
	f.share.release()
}

// jsonSpace is what JSON allows between values.
const jsonSpace = " \t\r\n"

// parseObject reads one JSON object, which nothing may follow.
func parseObject(data []byte) (*fields, *Error) {
	if !utf8.Valid(data) {
		return nil, invalid("", "invalid_json", "The request body is not valid UTF-8.")
	}
	if !json.Valid(data) {
		return nil, syntaxError(data)
	}
	f := &fields{}
	data = bytes.Trim(data, jsonSpace)
	if kind := kindOf(data); kind != "object" {
		return nil, invalid("", "invalid_json", "The request body must be a JSON object, not %s.", article(kind))
	}
	f.readMembers(data, maxMembers)
	return f, f.err
}

// syntaxError says what is wrong with a body that is not one JSON value.
func syntaxError(data []byte) *Error {
	dec := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	err := dec.Decode(&value)
	switch {
	case errors.Is(err, io.EOF):
		return invalid("", "invalid_json", "The request body is empty; expected a JSON object.")
	case err != nil:
		return invalid("", "invalid_json", "The request body is not valid JSON: %v (at byte %d).", err, dec.InputOffset())
	}
	if kind := kindOf(value); kind != "object" {
		return invalid("", "invalid_json", "The request body must be a JSON object, not %s.", article(kind))
	}
	rest := bytes.TrimLeft(data[dec.InputOffset():], jsonSpace)
	return invalid("", "invalid_json", "Unexpected data after the JSON object at byte %d.", len(data)-len(rest))
}

// maxMembers is the most members of an object of a body, but for logit_bias.
const maxMembers = 1024

// readMembers reads the members of an object, of which there may be a number. Of
// several with one name the last counts.
func (f *fields) readMembers(object json.RawMessage, most int) {
	f.raw = map[string]json.RawMessage{}
	n := 0
	for name, value := range members(object) {
		if n++; n > most {
			param := strings.TrimSuffix(f.path, ".")
			f.fail(invalid(param, "too_many_items", "The object '%s' has more than %d members.", param, most))
			return
		}
		f.raw[text(name)] = value
	}
}

// fail records an error unless there is an earlier one.
func (f *fields) fail(e *Error) {
	if f.err == nil {
		f.err = e
	}
}

// cancelled reports whether the request has ended, and records that as the error.
// Every loop over a part of the body calls it, on the fields of the whole body.
func (f *fields) cancelled() bool {
	if f.ctx != nil && f.ctx.Err() != nil {
		f.fail(errCancelled)
	}
	return f.err != nil
}

// errCancelled ends the parsing of a request that has ended. failRun does not
// send it.
var errCancelled = &Error{Status: statusClientClosed, Code: "cancelled", Message: "The request was cancelled."}

// has reports whether a member is present and not null.
func (f *fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && kindOf(raw) != "null"
}

// get returns the raw member, or nil if it is absent, null or read after an
// error.
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

// number reads a number in [lo, hi].
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
	if json.Unmarshal(raw, &v) != nil || v < lo || v > hi { // Unmarshal fails on 1e999
		f.fail(invalid(f.path+name, "out_of_range", "'%s' must be from %v to %v, not %s.", f.path+name, lo, hi, excerpt(raw)))
		return def
	}
	return v
}

// integer reads an integer in [lo, hi]; 16.0 counts as one.
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
		f.fail(invalid(f.path+name, "invalid_type", "'%s' must be an integer, not %s.", f.path+name, excerpt(raw)))
		return def
	}
	if v < lo || v > hi {
		limit := fmt.Sprintf("from %d to %d", lo, hi)
		if hi == math.MaxInt32 || hi == math.MaxInt64 {
			limit = fmt.Sprintf("at least %d", lo)
		}
		f.fail(invalid(f.path+name, "out_of_range", "'%s' must be %s, not %s.", f.path+name, limit, excerpt(raw)))
		return def
	}
	return v
}

// object reads a member that is an object; an absent one is empty, not nil. The
// caller must pass the result to adopt once it has been read.
func (f *fields) object(name string) *fields { return f.objectOf(name, maxMembers) }

// objectOf is object with a limit on the number of members.
func (f *fields) objectOf(name string, most int) *fields {
	o := &fields{path: f.path + name + "."}
	raw := f.get(name)
	if raw == nil {
		return o
	}
	if kindOf(raw) != "object" {
		f.wrongType(name, "an object", raw)
		return o
	}
	o.readMembers(raw, most)
	return o
}

// adopt takes over the error of an object that was read from f.
func (f *fields) adopt(o *fields) {
	if o.err != nil {
		f.fail(o.err)
	}
}

// list reads a member that is an array, of which there may be a number of
// elements. They are slices of the body.
func (f *fields) list(name string, most int) []json.RawMessage {
	raw := f.get(name)
	if raw == nil {
		return nil
	}
	if kindOf(raw) != "array" {
		f.wrongType(name, "an array", raw)
		return nil
	}
	n := count(raw, most)
	if n > most {
		param := f.path + name
		f.fail(invalid(param, "too_many_items", "'%s' has more than %d items; at most %d are allowed.", param, most, most))
		return nil
	}
	l := make([]json.RawMessage, 0, n)
	for _, item := range elements(raw) {
		l = append(l, item)
	}
	return l
}

// kindOf returns the JSON type of a valid value without leading space, as the
// values of a decoded document are: null, boolean, number, string, array or
// object.
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

// article returns a type of kindOf with its indefinite article.
func article(kind string) string {
	switch kind {
	case "null":
		return "null"
	case "object", "array":
		return "an " + kind
	}
	return "a " + kind
}

// text decodes a JSON string; unpaired surrogates become U+FFFD.
func text(raw json.RawMessage) string {
	var s string
	mustUnmarshal(raw, &s)
	return s
}

// wholeNumber decodes a JSON number that is an integer within the range of int64.
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

// mustUnmarshal decodes a value whose type kindOf has confirmed. The document
// around it is known to be valid, so an error is a bug.
func mustUnmarshal(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("api: a %s of a valid document: %T", kindOf(raw), err)) // not err: its text quotes the body
	}
}

// excerpt is the start of a value, short enough for an error message.
func excerpt(raw json.RawMessage) string {
	if len(raw) <= 40 {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw[:40]), "") + "…"
}
