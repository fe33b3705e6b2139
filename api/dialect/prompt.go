package dialect

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"ringmaster/model/chat"
)

// Render makes the prompt of a body's conversation in the model's format, as token ids,
// and its branches (engine.Request.Branches). The error is ErrCancelled if the request has
// ended.
func (s *Service) Render(f *Fields, c *chat.Conversation) (ids []int32, branches []int, failed *Error) {
	ctx := f.Ctx
	for i := range c.Messages {
		if m := &c.Messages[i]; m.Role == chat.Assistant {
			m.Sampled, m.Thought = s.Replays.Find(f.Scope, m)
		}
	}
	ids, branches, err := s.Model.Format.Encode(ctx, s.Encoder(), c)
	if err == nil {
		return ids, branches, nil
	}
	var own *Error
	switch {
	case ctx.Err() != nil:
		return nil, nil, ErrCancelled
	case errors.As(err, &own):
		return nil, nil, own
	}
	e := &Error{Status: http.StatusBadRequest, Code: "invalid_value", Message: err.Error()}
	var field *chat.Error
	if errors.As(err, &field) {
		e.Param, e.Message = field.Field, "'"+field.Field+"': "+field.Message+"."
	}
	if errors.Is(err, chat.ErrUnsupported) {
		e.Code = "unsupported_parameter"
	}
	return nil, nil, e
}

// boundedEncoder refuses texts that together cannot fit the context, whatever their
// tokens are, before it tokenizes the excess.
type boundedEncoder struct {
	Tokenizer
	context  int // tokens; 0: no limit
	maxBytes int // of the text of a token
	bytes    int // of the texts so far
}

// Encoder returns the tokenizer for the texts of a client that form one prompt.
func (s *Service) Encoder() chat.Encoder {
	return &boundedEncoder{s.Tokenizer, s.Model.ContextLength, s.MaxTokenBytes, 0}
}

// EncodeContext calls the Tokenizer's; for a text that is too long the error is an
// *Error.
func (e *boundedEncoder) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	if e.bytes += len(text); e.context > 0 && e.bytes/e.maxBytes >= e.context {
		return nil, &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded",
			Message: fmt.Sprintf("A prompt of at least %d bytes does not fit the context of %d tokens: no token has more than %d bytes.", e.bytes, e.context, e.maxBytes)}
	}
	return e.Tokenizer.EncodeContext(ctx, text, special)
}

// Encode turns a text of a client into token ids. The error is ErrCancelled if ctx has
// ended.
func (s *Service) Encode(ctx context.Context, text string, special bool) ([]int32, *Error) {
	ids, err := s.Encoder().EncodeContext(ctx, text, special)
	var failed *Error
	switch {
	case errors.As(err, &failed):
		return nil, failed
	case err != nil:
		return nil, ErrCancelled
	}
	return ids, nil
}

// MaxTokenBytes returns the length of the longest text of a token, at least 1.
func MaxTokenBytes(t Tokenizer) int {
	longest := 1
	for id := range int32(t.Size()) {
		longest = max(longest, len(t.Bytes(id)), len(t.Text(id)))
	}
	return longest
}
