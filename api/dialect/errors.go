package dialect

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"ringmaster/constraint"
	"ringmaster/engine"
	"ringmaster/model"
)

// Error is an error response, which each dialect writes in a form of its own.
type Error struct {
	Status  int    // HTTP status
	Message string // for people; names the field and the remedy
	Param   string // the field at fault; null when ""
	Code    string // for programs; null when ""
	// RetryAfter becomes a Retry-After header when not 0.
	RetryAfter time.Duration
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// OrNull returns nil, which is null in JSON, for an empty string.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Invalid is a 400 that names a field.
func Invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Unsupported is a 400 for a field that is known but not implemented.
func Unsupported(param, format string, args ...any) *Error {
	return Invalid(param, "unsupported_parameter", format, args...)
}

// EngineError translates an error of the engine for the client. The texts of unknown
// errors stay in the log. retry says when a client may try again.
func EngineError(err error, retry time.Duration) *Error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, engine.ErrShare): // before ErrBusy, which it also is
		return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: retry,
			Message: "The requests of this API key take up its share of the request queue; try again later."}
	case errors.Is(err, engine.ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: retry,
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
		return &Error{Status: http.StatusServiceUnavailable, Code: "out_of_memory", RetryAfter: retry,
			Message: "The server is out of memory for the KV cache of this request; try again later or shorten the prompt."}
	case errors.Is(err, engine.ErrStorage):
		return &Error{Status: http.StatusServiceUnavailable, Code: "storage_failed", RetryAfter: retry,
			Message: "The server could not read a part of the model's file that this request needs; see the server log."}
	case errors.Is(err, engine.ErrUnavailable):
		return &Error{Status: http.StatusServiceUnavailable, Code: "group_unavailable", RetryAfter: retry,
			Message: "The group of hosts that runs the model is unavailable; try again later: " + unavailableCause(err)}
	case errors.Is(err, engine.ErrConstraint) && !errors.Is(err, constraint.ErrNotAllowed):
		return &Error{Status: http.StatusBadRequest, Code: "unsupported_schema",
			Message: "The form of the answer cannot be enforced: " + constraintCause(err) + "."}
	case errors.Is(err, engine.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "The server is shutting down."}
	case errors.Is(err, engine.ErrNonFinite):
		// There is no Retry-After because the same request gives the same numbers.
		return &Error{Status: http.StatusInternalServerError, Code: "non_finite_output",
			Message: "The model computed numbers for this request that are not finite, so no token can be chosen; other requests are not affected. See the server log."}
	case errors.Is(err, engine.ErrFailed):
		return &Error{Status: http.StatusServiceUnavailable, Code: "model_failed",
			Message: "The model has failed and cannot generate tokens; see the server log and /readyz."}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal_error",
		Message: "Internal server error; see the server log."}
}

// constraintCause returns why an answer in its form cannot continue.
func constraintCause(err error) string {
	for _, known := range []error{constraint.ErrTooSlow, constraint.ErrTooDeep, constraint.ErrNoToken} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return strings.TrimPrefix(err.Error(), engine.ErrConstraint.Error()+": ")
}

// unavailableCause returns the part of the error that names the missing rank.
func unavailableCause(err error) string {
	var cause *model.UnavailableError
	if errors.As(err, &cause) {
		return cause.Error()
	}
	return err.Error()
}

// StatusClientClosed is the status in logs and metrics of a request from a client that
// disconnected.
const StatusClientClosed = 499
