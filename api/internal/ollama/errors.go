package ollama

import (
	"strings"

	"ringmaster/api/dialect"
)

// Errors describes how errors are written.
var Errors = dialect.Errors{
	Body:   errorBody,
	Stream: func(out *dialect.Writer, e *dialect.Error) { out.Line(errorBody(e)) },
}

func errorBody(e *dialect.Error) any {
	message := e.Message
	if e.Param != "" && !strings.Contains(message, e.Param) { // the error object has no member for it
		message = e.Param + ": " + message
	}
	return struct {
		Error string `json:"error"`
	}{message}
}
