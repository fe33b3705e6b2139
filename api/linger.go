package api

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
)

// lingerBody is the context key that says that a body is refused of which the rest
// must still be received.
const lingerBody = "api.lingerBody"

// linger reads and forgets, after its refusal has been sent, what is left of a body,
// within the time that the body had anyway (Config.BodyTimeout). Most clients send the
// whole body before they read: a connection that is closed with data unread is reset,
// and they would see a broken connection in place of the status. It is the outermost
// handler, so that the request has ended for the log and the metrics.
func (s *server) linger(c *gin.Context) {
	c.Next()
	// A client that waits for leave to send, by Expect, sends nothing now; HTTP/2 ends
	// one stream without harm to its answer.
	if !c.GetBool(lingerBody) || c.GetHeader("Expect") != "" || c.Request.ProtoMajor != 1 {
		return
	}
	rc := http.NewResponseController(c.Writer)
	if rc.Flush() != nil {
		return
	}
	limitBody(c.Writer, c.Request, s.BodyTimeout)
	_, _ = io.Copy(io.Discard, c.Request.Body) // an error is the end of it, too
}

// refuseBody says that no more of the body is wanted: the connection ends after the
// refusal, once the client has had the time to send the rest.
func refuseBody(c *gin.Context) {
	c.Header("Connection", "close")
	if http.NewResponseController(c.Writer).EnableFullDuplex() == nil { // not a test's recorder
		c.Set(lingerBody, true)
	}
}
