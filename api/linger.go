package api

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// lingerBody is the context key of a request whose refused body linger must receive.
const lingerBody = "api.lingerBody"

// lingerBytes is the most that is read of a refused body, or Config.MaxBody if that is
// more: a client that goes on sending beyond it may miss the status.
const lingerBytes = 256 << 20

// linger reads and discards what is left of a refused body after the refusal has been
// sent, until Config.BodyTimeout after the request began. Most clients send the whole
// body before they read: a connection that is closed with data unread is reset, and they
// would see a broken connection in place of the status. It is the outermost handler, so
// that the request has ended for the log and the metrics.
func (s *server) linger(c *gin.Context) {
	began := time.Now() // sockets use the system clock
	c.Next()
	// A client that has sent Expect: 100-continue sends nothing now; HTTP/2 resets one
	// stream, and the response still arrives.
	if !c.GetBool(lingerBody) || c.GetHeader("Expect") != "" || c.Request.ProtoMajor != 1 {
		return
	}
	rc := http.NewResponseController(c.Writer)
	if rc.Flush() != nil {
		return
	}
	limitBody(c.Writer, c.Request, s.BodyTimeout-time.Since(began))
	_, _ = io.CopyN(io.Discard, c.Request.Body, max(s.MaxBody, lingerBytes)) // an error ends it, too
}

// refuseBody marks a request whose body is refused: the connection is closed after the
// response, once linger has received the rest.
func refuseBody(c *gin.Context) {
	c.Header("Connection", "close")
	if http.NewResponseController(c.Writer).EnableFullDuplex() == nil { // not a test's recorder
		c.Set(lingerBody, true)
	}
}
