package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"ringmaster/engine"
	"ringmaster/model"
)

// Error is an error response. In JSON it is OpenAI's error object.
type Error struct {
	Status  int    // HTTP status
	Message string // for people; names the field and the remedy
	Type    string // "": derived from Status
	Param   string // the field at fault; null when ""
	Code    string // for programs; null when ""
	// RetryAfter becomes a Retry-After header when not 0.
	RetryAfter time.Duration
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// errorType is the "type" that client libraries map to their exceptions.
func (e *Error) errorType() string {
	switch {
	case e.Type != "":
		return e.Type
	case e.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.Status == http.StatusUnauthorized:
		return "authentication_error"
	case e.Status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

type errorObject struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *Error) object() errorObject {
	return errorObject{errorBody{Message: e.Message, Type: e.errorType(), Param: orNull(e.Param), Code: orNull(e.Code)}}
}

// orNull returns nil, which is null in JSON, for an empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fail responds with an error and stops the handler chain.
func (s *server) fail(c *gin.Context, e *Error) {
	hurryBody(c)
	if e.RetryAfter > 0 {
		seconds := int64((e.RetryAfter + time.Second - 1) / time.Second)
		c.Header("Retry-After", strconv.FormatInt(seconds, 10))
	}
	s.writeJSON(c, e.Status, e.object())
	c.Abort()
}

// invalid is a 400 that names a field.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
}

// unsupported is a 400 for a field that is known but not implemented.
func unsupported(param, format string, args ...any) *Error {
	return invalid(param, "unsupported_parameter", format, args...)
}

// engineError translates an error of the engine for the client. The texts of
// unknown errors stay in the log.
func (s *server) engineError(err error) *Error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, engine.ErrShare): // before ErrBusy, which it also is
		return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
			Message: "The requests of this API key take up its share of the request queue; try again later."}
	case errors.Is(err, engine.ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
			Message: "The request queue is full; try again later."}
	case errors.Is(err, engine.ErrTooMany):
		return &Error{Status: http.StatusBadRequest, Code: "too_many_choices",
			Message: "The request asks for more answers (prompts times n) than this server can ever take at once; split it: " + err.Error() + "."}
	case errors.Is(err, engine.ErrTooLong):
		return &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded", Message: err.Error()}
	case errors.Is(err, engine.ErrTooLarge):
		return &Error{Status: http.StatusBadRequest, Code: "exceeds_memory",
			Message: "The KV cache of this request is larger than the server's memory for all of them; shorten the prompt or lower max_tokens: " + err.Error() + "."}
	case errors.Is(err, engine.ErrInvalid):
		return &Error{Status: http.StatusBadRequest, Code: "invalid_value", Message: err.Error()}
	case errors.Is(err, engine.ErrNoMemory):
		return &Error{Status: http.StatusServiceUnavailable, Code: "out_of_memory", RetryAfter: s.RetryAfter,
			Message: "The server is out of memory for the KV cache of this request; try again later or shorten the prompt."}
	case errors.Is(err, engine.ErrUnavailable):
		return &Error{Status: http.StatusServiceUnavailable, Code: "group_unavailable", RetryAfter: s.RetryAfter,
			Message: "The group of hosts that runs the model is unavailable; try again later: " + unavailableCause(err)}
	case errors.Is(err, engine.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "The server is shutting down."}
	case errors.Is(err, engine.ErrNonFinite):
		// No Retry-After: the same request gives the same numbers.
		return &Error{Status: http.StatusInternalServerError, Code: "non_finite_output",
			Message: "The model computed numbers for this request that are not finite, so no token can be chosen; other requests are not affected. See the server log."}
	case errors.Is(err, engine.ErrFailed):
		return &Error{Status: http.StatusServiceUnavailable, Code: "model_failed",
			Message: "The model has failed and cannot generate tokens; see the server log and /readyz."}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal_error",
		Message: "Internal server error; see the server log."}
}

// unavailableCause is the part of the error that names the missing rank.
func unavailableCause(err error) string {
	var cause *model.UnavailableError
	if errors.As(err, &cause) {
		return cause.Error()
	}
	return err.Error()
}
