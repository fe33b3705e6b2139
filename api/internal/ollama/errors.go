package ollama

import (
	"strings"

	"ringmaster/api/dialect"
)

// Errors is how errors are written.
var Errors = dialect.Errors{
	Body:   errorBody,
	Stream: func(out *dialect.Writer, e *dialect.Error) error { return out.Line(errorBody(e)) },
}

func errorBody(e *dialect.Error) any {
	message := e.Message
	if e.Param != "" && !strings.Contains(message, e.Param) { // there is no member for it
		message = e.Param + ": " + message
	}
	return struct {
		Error string `json:"error"`
	}{message}
}
