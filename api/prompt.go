package api

import (
	"context"
	"errors"
	"fmt"
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
	ids, err := prompt.Encode(ctx, s.encoder(), r.messages, o)
	if err == nil {
		return ids, nil
	}
	var own *Error
	if ctx.Err() != nil || errors.As(err, &own) {
		return nil, err
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

// boundedEncoder refuses texts that cannot fit the context, whatever their tokens
// are, before any work is done on them.
type boundedEncoder struct {
	Tokenizer
	context  int // tokens; 0: no limit
	maxBytes int // of the text of a token
}

func (s *server) encoder() boundedEncoder {
	return boundedEncoder{s.Tokenizer, s.Model.ContextLength, s.maxTokenBytes}
}

// EncodeContext is that of the Tokenizer; for a text that is too long its error is
// an *Error.
func (e boundedEncoder) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	if e.context > 0 && len(text)/e.maxBytes >= e.context {
		return nil, &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded",
			Message: fmt.Sprintf("A text of %d bytes does not fit the context of %d tokens: no token has more than %d bytes.", len(text), e.context, e.maxBytes)}
	}
	return e.Tokenizer.EncodeContext(ctx, text, special)
}

// maxTokenBytes is the length of the longest text of a token, at least 1.
func maxTokenBytes(t Tokenizer) int {
	longest := 1
	for id := range int32(t.Size()) {
		longest = max(longest, len(t.Bytes(id)), len(t.Text(id)))
	}
	return longest
}
