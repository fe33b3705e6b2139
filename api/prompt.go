package api

import (
	"context"
	"errors"
	"net/http"

	"ringmaster/model/prompt"
)

// render applies the chat template: it turns the conversation into token ids. Its
// error is an *Error, or that of ctx.
func (s *server) render(ctx context.Context, r *chatRequest) ([]int32, error) {
	o := prompt.Options{Thinking: r.thinking.on, Effort: r.thinking.effort, Version: s.Model.Version}
	if r.continueFinal {
		o.Ending = prompt.Continue
	}
	ids, err := prompt.Encode(ctx, s.Tokenizer, r.messages, o)
	if err == nil {
		return ids, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e := &Error{Status: http.StatusBadRequest, Code: "invalid_value", Message: err.Error()}
	var field *prompt.Error
	if errors.As(err, &field) {
		e.Param, e.Message = field.Field, "'"+field.Field+"': "+field.Message+"."
	}
	if errors.Is(err, prompt.ErrUnsupported) {
		e.Code = "unsupported_parameter"
	}
	return nil, e
}
