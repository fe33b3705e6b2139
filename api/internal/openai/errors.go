package openai

import (
	"net/http"

	"ringmaster/api/dialect"
)

// errorType is the "type" that client libraries map to their exceptions.
func errorType(e *dialect.Error) string {
	switch {
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

// ErrorBody is the JSON of an error response.
func ErrorBody(e *dialect.Error) any {
	return errorObject{errorBody{Message: e.Message, Type: errorType(e), Param: dialect.OrNull(e.Param), Code: dialect.OrNull(e.Code)}}
}

// Errors describes how errors are written.
var Errors = dialect.Errors{
	Body:   ErrorBody,
	Stream: func(out *dialect.Writer, e *dialect.Error) { out.Data(ErrorBody(e)) },
}
