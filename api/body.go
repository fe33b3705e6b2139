package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
)

// body is a request's body with the share of the budget for bodies that it holds.
type body struct {
	*dialect.Fields
	share *share
}

// withBody handles an endpoint that needs the request body, and releases the body
// afterwards.
func (s *server) withBody(handle func(c *gin.Context, f *body)) gin.HandlerFunc {
	return func(c *gin.Context) {
		f, failed := s.readBody(c)
		if failed != nil {
			s.fail(c, failed)
			return
		}
		defer f.release()
		handle(c, f)
	}
}

// readBody reads the request body, which must be one JSON object in UTF-8, sent as
// application/json and within the size limit and the budget. The caller must call
// release.
func (s *server) readBody(c *gin.Context) (*body, *Error) {
	if !mediaAllowed(c.Request) {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: fmt.Sprintf("Content-Type must be application/json, not '%s'.", c.GetHeader("Content-Type"))}
	}
	if c.Request.ContentLength > s.MaxBody {
		refuseBody(c)
		return nil, s.bodyTooLarge()
	}
	part := s.bodies.open(c.Request.ContentLength)
	if part == nil {
		refuseBody(c)
		return nil, s.noBudget()
	}
	keep := false
	defer func() {
		if !keep {
			part.release()
		}
	}()
	limitBody(c.Writer, c.Request, s.BodyTimeout)
	data, failed, err := s.readAll(c, part)
	if failed != nil {
		refuseBody(c)
		return nil, failed
	}
	if err != nil {
		// The read deadline stays set because net/http would otherwise wait for the rest
		// of the body.
		c.Header("Connection", "close")
	} else {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{})
		c.Set(bodyRead, true)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errBudget):
		refuseBody(c)
		return nil, s.noBudget()
	case errors.As(err, &tooLarge):
		refuseBody(c)
		return nil, s.bodyTooLarge()
	case err != nil && context.Cause(c.Request.Context()) == error(errShutdown):
		return nil, errShutdown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Status: http.StatusRequestTimeout, Code: "request_timeout",
			Message: fmt.Sprintf("The request body was not received within %s.", s.BodyTimeout)}
	case err != nil:
		return nil, dialect.Invalid("", "invalid_body", "Could not read the request body: %v.", err)
	}
	f, failed := dialect.ParseObject(data)
	if failed != nil {
		return nil, failed
	}
	keep = true
	f.Ctx, f.Scope = c.Request.Context(), s.scope(c)
	return &body{f, part}, nil
}

// readAll reads and decodes the body. failed is an error of the request's own, err one of
// reading.
func (s *server) readAll(c *gin.Context, part *share) (data []byte, failed *Error, err error) {
	r, done, err := s.decoded(c, http.MaxBytesReader(c.Writer, c.Request.Body, s.MaxBody), part)
	if errors.As(err, &failed) {
		return nil, failed, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer done()
	data, err = io.ReadAll(io.LimitReader(sharedReader{r, part}, s.MaxBody+1))
	if int64(len(data)) > s.MaxBody {
		return nil, s.bodyTooLarge(), nil
	}
	return data, nil, err
}

// mediaAllowed reports whether a body may have the request's media type. A web page can
// send application/json to another origin only after a CORS preflight, so this guards
// against cross-site requests. The types that it can send without one, and none, which
// curl and Ollama's own examples use, are allowed to programs: a browser says in its
// headers that it is one.
func mediaAllowed(r *http.Request) bool {
	media := "text/plain" // as good as none
	if header := r.Header.Get("Content-Type"); header != "" {
		var err error
		if media, _, err = mime.ParseMediaType(header); err != nil {
			return false
		}
	}
	switch media {
	case "application/json":
		return true
	case "text/plain", "application/x-www-form-urlencoded", "application/octet-stream":
		for _, name := range []string{"Origin", "Sec-Fetch-Site", "Referer", "Cookie"} {
			if len(r.Header.Values(name)) > 0 {
				return false
			}
		}
		return !strings.HasPrefix(r.Header.Get("User-Agent"), "Mozilla/") // as browsers from before those headers
	}
	return false
}

// bodyTooLarge returns the error for a body that is too long.
func (s *server) bodyTooLarge() *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large",
		Message: fmt.Sprintf("The request body exceeds %d bytes.", s.MaxBody)}
}

// noBudget returns the error for a body that exceeds the budget now.
func (s *server) noBudget() *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
		Message: fmt.Sprintf("Request bodies take up all of the server's %d bytes for them; try again later.", s.BodyBudget)}
}

// release forgets the body and gives its bytes back to the budget. It may be
// called more than once.
func (f *body) release() {
	f.Forget()
	f.share.release()
}
