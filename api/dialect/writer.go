package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Writer writes the answer to one request: as one JSON value, or as a stream of
// server-sent events or of lines. It sends the headers of a stream with the first part,
// so that an earlier error can still have its own status. After an error it writes nothing
// more, and Err has the error.
type Writer struct {
	http http.ResponseWriter

	Started bool // a part of a stream has been written
	// Fail ends a stream that has begun with an error; nil: Errors.Stream does.
	Fail func(e *Error)
	sent bool // something since the last tick
	err  error
}

// NewWriter writes to w.
func NewWriter(w http.ResponseWriter) *Writer { return &Writer{http: w} }

// Err returns the error of the first write to the client that failed, or nil.
func (w *Writer) Err() error { return w.err }

// Silent is called at every tick, and reports whether nothing was sent since the last
// tick.
func (w *Writer) Silent() bool {
	silent := !w.sent
	w.sent = false
	return silent
}

// The media types of streams.
const (
	eventStream = "text/event-stream; charset=utf-8"
	lineStream  = "application/x-ndjson"
)

// Comment sends a comment of an event stream, which clients skip.
func (w *Writer) Comment(text string) {
	w.write(eventStream, []byte(": "+text+"\n\n"))
}

// Data sends a server-sent event without a name.
func (w *Writer) Data(v any) { w.Event("", v) }

// Event sends a server-sent event with a name and a JSON value.
func (w *Writer) Event(name string, v any) {
	w.sent = true
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	w.write(eventStream, append(append(append(b, "data: "...), Marshal(v)...), "\n\n"...))
}

// Done sends the event that ends a stream of OpenAI's API.
func (w *Writer) Done() { w.write(eventStream, []byte("data: [DONE]\n\n")) }

// Line sends a JSON value on a line of its own.
func (w *Writer) Line(v any) {
	w.sent = true
	w.write(lineStream, append(Marshal(v), '\n'))
}

// JSON responds with one JSON value.
func (w *Writer) JSON(status int, v any) {
	b := append(Marshal(v), '\n')
	w.http.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.http.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.http.WriteHeader(status)
	_, _ = w.http.Write(b) // an error means the client has disconnected
}

func (w *Writer) write(media string, b []byte) {
	if w.err != nil {
		return
	}
	if !w.Started {
		w.Started = true
		h := w.http.Header()
		h.Set("Content-Type", media)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
		w.http.WriteHeader(http.StatusOK)
	}
	_, err := w.http.Write(b)
	if err == nil {
		err = http.NewResponseController(w.http).Flush()
	}
	if err != nil {
		w.err = fmt.Errorf("api: writing to the client: %w", err)
	}
}

// Marshal returns v as JSON on one line without HTML escapes. v is a struct of a dialect
// that JSON can express; anything else is a bug, so Marshal panics.
func Marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("api: a reply that is not JSON: %T", v))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
