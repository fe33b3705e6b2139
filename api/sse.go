package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
)

// sseWriter writes server-sent events. The headers are sent with the first of
// them, so that an earlier error can still have its own status.
type sseWriter struct {
	c       *gin.Context
	started bool
	sent    bool // something since the last tick
	failed  bool // a write to the client failed
}

// tick is called every Config.KeepAlive. If nothing was sent since the last
// tick it sends a comment, which clients skip.
func (s *sseWriter) tick() error {
	if s.sent {
		s.sent = false
		return nil
	}
	return s.write([]byte(": keep-alive\n\n"))
}

// send writes one event with a JSON value.
func (s *sseWriter) send(v any) error {
	s.sent = true
	return s.write(append(append([]byte("data: "), encode(v)...), "\n\n"...))
}

// done writes the event that ends an OpenAI stream.
func (s *sseWriter) done() error { return s.write([]byte("data: [DONE]\n\n")) }

func (s *sseWriter) write(b []byte) error {
	w := s.c.Writer
	if !s.started {
		s.started = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // a proxy in between must not buffer
		w.WriteHeader(http.StatusOK)
	}
	_, err := w.Write(b)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		s.failed = true
		return fmt.Errorf("api: writing to the client: %w", err)
	}
	return nil
}

// encode returns v as JSON on one line without HTML escapes. The values are
// structs of this package, so it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("api: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// writeJSON responds with a JSON value.
func (s *server) writeJSON(c *gin.Context, status int, v any) {
	c.Data(status, "application/json; charset=utf-8", append(encode(v), '\n'))
}
