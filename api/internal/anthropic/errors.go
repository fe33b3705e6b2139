package anthropic

import (
	"net/http"
	"strings"

	"ringmaster/api/dialect"
)

// statusOverloaded is the API's own status for a server that has no capacity now.
const statusOverloaded = 529

// Errors describes how errors are written.
var Errors = dialect.Errors{
	Body:   errorBody,
	Status: status,
	Stream: func(out *dialect.Writer, e *dialect.Error) { out.Event("error", errorBody(e)) },
}

// status returns the HTTP status of an error. Unavailable becomes overloaded, because
// clients then try again.
func status(e *dialect.Error) int {
	if e.Status == http.StatusServiceUnavailable {
		return statusOverloaded
	}
	return e.Status
}

// errorType is the "type" that client libraries map to their exceptions.
func errorType(e *dialect.Error) string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if e.Status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

func errorBody(e *dialect.Error) any {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	message := e.Message
	if e.Param != "" && !strings.Contains(message, e.Param) { // the error object has no member for it
		message = e.Param + ": " + message
	}
	return struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{errorType(e), message}}
}
