package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
)

// events writes server-sent events. Headers go out with the first of them, so
// that until then an error can still have a status of its own.
type events struct {
	c       *gin.Context
	started bool
	sent    bool // something since the last tick
	failed  bool // the client takes no more
}

// tick is called every Config.KeepAlive: it sends a comment, which clients
// skip, if nothing was sent since the last tick.
func (e *events) tick() error {
	if e.sent {
		e.sent = false
		return nil
	}
	return e.write([]byte(": keep-alive\n\n"))
}

// send writes one event with a JSON value.
func (e *events) send(v any) error {
	e.sent = true
	return e.write(append(append([]byte("data: "), encode(v)...), "\n\n"...))
}

// done writes the event that ends an OpenAI stream.
func (e *events) done() error { return e.write([]byte("data: [DONE]\n\n")) }

func (e *events) write(b []byte) error {
	w := e.c.Writer
	if !e.started {
		e.started = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // a proxy in between must not collect
		w.WriteHeader(http.StatusOK)
	}
	_, err := w.Write(b)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		e.failed = true
		return fmt.Errorf("api: client is gone: %w", err)
	}
	return nil
}

// encode is JSON in one line without HTML escapes. Values are made of structs
// of this package, so that it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("api: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// writeJSON answers with a JSON value.
func (s *server) writeJSON(c *gin.Context, status int, v any) {
	c.Data(status, "application/json; charset=utf-8", append(encode(v), '\n'))
}
