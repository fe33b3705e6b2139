// Package prompt writes a conversation in the format that DeepSeek V4 models
// were trained on, and tells reasoning from answer in what they write.
//
// The format is a run of text with markers in it, each of which is one token:
//
//	<｜begin▁of▁sentence｜>SYSTEM<｜User｜>QUESTION<｜Assistant｜></think>ANSWER<｜end▁of▁sentence｜>
//
// The prompt ends where the answer is to begin: after "<｜Assistant｜></think>",
// or after "<｜Assistant｜><think>" when the model is to reason first.
//
// Message texts are untrusted and may spell out a marker. Segments keeps text and
// markers apart, and Encode makes marker tokens only of the markers that the
// format itself puts there, so no message can close a turn or open another. The
// model's own renderer does not keep them apart; for texts without markers both
// give the same ids.
package prompt

import (
	"context"
	"errors"
	"fmt"
)

// Role says who speaks.
type Role string

// The roles of a conversation.
const (
	System    Role = "system"
	Developer Role = "developer" // instructions; forgotten once a later question is asked (thinking mode)
	User      Role = "user"
	Assistant Role = "assistant"
	// LatestReminder is a note to the model with a marker of its own, put
	// before the question it belongs to.
	LatestReminder Role = "latest_reminder"
)

// Message is one turn of a conversation.
type Message struct {
	Role    Role
	Content string
	// Reasoning is what an assistant thought before Content. Other roles
	// have none; it is ignored there, and in chat mode.
	Reasoning string
}

// Version is a release of the model; they differ in the texts for effort.
type Version int

// The releases.
const (
	Preview     Version = iota // April 2026
	Release0731                // Flash-0731
)

// Ending says where the prompt stops.
type Ending int

// The endings of a prompt.
const (
	// Answer: where a new answer of the assistant begins. The last message
	// must not be the assistant's.
	Answer Ending = iota
	// Continue: within the last message, which must be the assistant's. It
	// is not closed, so the model goes on with it.
	Continue
	// Complete: after the last message, which is closed if it is the
	// assistant's. This is the conversation as training sees it.
	Complete
)

// Options say how a conversation is written. The zero value asks for an answer
// without reasoning.
type Options struct {
	Thinking bool
	// Effort is how hard the model is to think: "", "none", "low", "high",
	// "xhigh" or "max". It matters in thinking mode only; "xhigh" is "max".
	//
	//	            "", none, low   high      max, xhigh
	//	Preview     nothing         nothing   text 1
	//	Release0731 nothing         text 1    text 2
	Effort  string
	Version Version
	Ending  Ending
}

// The two kinds of errors. Errors of this package wrap one of them, and
// those about the conversation are of type *Error.
var (
	// ErrInvalid: the conversation or an option makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: it makes sense, but this package cannot write it.
	ErrUnsupported = errors.New("unsupported")
)

// Error tells what is wrong with which part of a conversation.
type Error struct {
	Kind    error  // ErrInvalid or ErrUnsupported
	Field   string // "messages", "messages[2].role", "effort", ...
	Message string // what is wrong and what would be right
}

// Error is "prompt: FIELD: MESSAGE".
func (e *Error) Error() string { return fmt.Sprintf("prompt: %s: %s", e.Field, e.Message) }

// Unwrap is Kind.
func (e *Error) Unwrap() error { return e.Kind }

// Segment is a part of a prompt: one marker, or text without markers of the
// format. No two segments of text follow each other, so the tokens of a prompt
// are those of its segments.
type Segment struct {
	Text   string
	Marker bool
}

// Encoder is what Encode needs of a tokenizer.
type Encoder interface {
	// EncodeContext gives the ids of a text; with special, markers spelled out
	// in it become their ids. It returns ctx's error soon after ctx has ended.
	EncodeContext(ctx context.Context, text string, special bool) ([]int32, error)
	// ID finds the token of a marker.
	ID(token string) (int32, bool)
}

// Encode is the prompt as token ids, with BOS. Every marker must be a token of
// the vocabulary; a model without it does not speak this format. It returns ctx's
// error soon after ctx has ended.
func Encode(ctx context.Context, t Encoder, messages []Message, o Options) ([]int32, error) {
	segments, err := Segments(messages, o)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, s := range segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !s.Marker {
			more, err := t.EncodeContext(ctx, s.Text, false)
			if err != nil {
				return nil, err
			}
			ids = append(ids, more...)
			continue
		}
		id, ok := t.ID(s.Text)
		if !ok {
			return nil, &Error{ErrUnsupported, "vocabulary", fmt.Sprintf("the model has no token %q, which this prompt needs", s.Text)}
		}
		ids = append(ids, id)
	}
	return ids, nil
}
