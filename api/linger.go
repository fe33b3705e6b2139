package api

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// lingerBody is the context key of a request with a refused body that linger must
// receive.
const lingerBody = "api.lingerBody"

// lingerBytes limits how much of a refused body is read, unless Config.MaxBody is larger:
// a client that sends more may miss the status.
const lingerBytes = 256 << 20

// linger reads and discards the rest of a refused body after the refusal was sent, until
// Config.BodyTimeout after the request began. Most clients send the whole body before
// they read. Closing a connection with unread data resets it, so they would see a broken
// connection instead of the status. linger is the outermost handler, so that the request
// has already ended for the log and the metrics.
func (s *server) linger(c *gin.Context) {
	began := time.Now() // sockets use the system clock
	c.Next()
	// A client that has sent Expect: 100-continue sends nothing now. HTTP/2 resets one
	// stream, so that the response still arrives.
	if !c.GetBool(lingerBody) || c.GetHeader("Expect") != "" || c.Request.ProtoMajor != 1 {
		return
	}
	rc := http.NewResponseController(c.Writer)
	if rc.Flush() != nil {
		return
	}
	limitBody(c.Writer, c.Request, s.BodyTimeout-time.Since(began))
	_, _ = io.CopyN(io.Discard, c.Request.Body, max(s.MaxBody, lingerBytes)) // an error also ends it
}

// refuseBody marks a request with a refused body. The connection closes after the
// response, once linger has received the rest.
func refuseBody(c *gin.Context) {
	c.Header("Connection", "close")
	if http.NewResponseController(c.Writer).EnableFullDuplex() == nil { // not a test's recorder
		c.Set(lingerBody, true)
	}
}
