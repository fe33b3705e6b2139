package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// writePiece is how much is written to a client under one deadline, with the 4 KiB that
// net/http may still hold. A client that reads a little more than that in
// Config.WriteTimeout gets an answer of any length. The connection's send buffer is small
// (sendBuffer) because progress is visible only when the kernel takes more.
const writePiece = 16 << 10

// unreadBodyTimeout is how long net/http may wait for a body that no handler reads, or
// for the rest of a refused body, so that a client cannot keep a connection busy with so
// little.
const unreadBodyTimeout = time.Second

// deadlines sets a deadline for receiving the request body and for each write to the
// client. Sockets use the system clock, whatever Config.Clock is; a writer that does not
// support deadlines (a test's recorder) works without them.
func (s *server) deadlines(c *gin.Context) {
	endAfter(c.Writer, c.Request)
	limitBody(c.Writer, c.Request, unreadBodyTimeout) // body extends it
	w := &deadlineWriter{ResponseWriter: c.Writer, ctx: c.Request.Context(), timeout: s.WriteTimeout}
	c.Writer = w
	w.extend() // a response without a body also needs a new deadline
	c.Next()
}

// limitBody sets a deadline for receiving the request body even if no handler reads it,
// because net/http waits for an unread body.
func limitBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.ContentLength == 0 {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(timeout))
	if r.Context().Err() != nil { // Shutdown had set its deadline, and this call replaced it
		_ = rc.SetReadDeadline(expired)
	}
}

// bodyRead is the context key that records that the whole body was read.
const bodyRead = "api.bodyRead"

// hurryBody shortens the deadline for the unread body of a refused request.
func hurryBody(c *gin.Context) {
	if c.Request.ContentLength != 0 && !c.GetBool(bodyRead) {
		limitBody(c.Writer, c.Request, unreadBodyTimeout)
	}
}

// deadlineWriter renews the connection's write deadline before each piece, so that an
// answer may take hours to read but a client that stops reading cannot block it. It stops
// renewing when the request has ended, because a shutdown does not wait for slow readers.
type deadlineWriter struct {
	gin.ResponseWriter
	ctx     context.Context // of the request
	timeout time.Duration
	last    bool // the deadline is the final one
}

func (w *deadlineWriter) extend() {
	if w.last {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	if w.ctx.Err() == nil {
		_ = rc.SetWriteDeadline(time.Now().Add(w.timeout))
	}
	if w.ctx.Err() != nil { // Shutdown had set its deadline, and this call may have replaced it
		w.last = true
		_ = rc.SetWriteDeadline(time.Now().Add(min(w.timeout, finalWriteTimeout)))
	}
}

func (w *deadlineWriter) Write(b []byte) (n int, err error) {
	for {
		w.extend()
		m, err := w.ResponseWriter.Write(b[n:min(len(b), n+writePiece)])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

func (w *deadlineWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// FlushError is called by http.ResponseController; gin's own Flush drops the
// error.
func (w *deadlineWriter) FlushError() error {
	w.extend()
	w.WriteHeaderNow()
	if inner, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok {
		return http.NewResponseController(inner.Unwrap()).Flush()
	}
	w.Flush()
	return nil
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
