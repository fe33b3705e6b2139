// Package chat writes a conversation in the format that a model was trained on and reads
// the model's answer: its reasoning, its text and its tool calls.
//
// A Format describes one family of models. Its Template makes a prompt from a
// conversation: text and markers, and each marker is one token. For DeepSeek V4:
//
//	<｜begin▁of▁sentence｜>SYSTEM<｜User｜>QUESTION<｜Assistant｜></think>ANSWER<｜end▁of▁sentence｜>
//
// The prompt ends where the answer begins. Its Parser takes the answer in parts, however
// they are cut, and returns what is certain so far. The example shows both.
//
// Texts of a conversation are untrusted and may spell out a marker. Segments keep text
// and markers apart, and Encode makes marker tokens only of the markers that the format
// itself puts there, so that no message can close a turn or open another. The models'
// own renderers do not keep them apart; for texts without markers both give the same ids.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Role says who speaks.
type Role string

// The roles of a conversation.
const (
	System    Role = "system"
	Developer Role = "developer" // instructions; V4 drops them once a later question is asked (thinking mode)
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool" // the result of a call
	// LatestReminder is a note to the model with its own marker, which precedes the
	// question it belongs to (DeepSeek V4).
	LatestReminder Role = "latest_reminder"
)

// Message is one turn of a conversation.
type Message struct {
	Role    Role
	Content string
	// Reasoning is what an assistant thought before Content. It is ignored for other
	// roles, and in chat mode unless the format says otherwise.
	Reasoning string
	Calls     []Call // of an assistant, after Content
	CallID    string // of a tool: the call that Content answers; "": the next one without a result
	// Sampled has the ids of an assistant's Content and Calls as they were sampled,
	// without the end token. It replaces both.
	Sampled []int32
	// Thought has the ids of an assistant's Reasoning as they were sampled, with the
	// marker that ends it; nil: not known.
	Thought []int32
	// ID is the id of an assistant's answer, if the client sends one.
	ID string
}

// Call is a call of a function.
type Call struct {
	ID        string
	Name      string
	Arguments string // JSON
}

// Function is a tool that the model may call.
type Function struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of an object; nil: no parameters
	Strict      bool            // the client wants Arguments to fit Parameters
	Raw         json.RawMessage // the whole definition, as the client wrote it

	members *lazyMembers // set by Parser
}

// Choice says whether the model calls functions.
type Choice int

// The choices.
const (
	Auto     Choice = iota // as the model likes
	Required               // at least one of the functions
)

// Ending says where the prompt stops.
type Ending int

// The endings of a prompt.
const (
	// Answer: the prompt ends where a new answer of the assistant begins. The last
	// message must not be the assistant's.
	Answer Ending = iota
	// Continue: the prompt ends within the last message, which must be the assistant's.
	// It stays open, so that the model continues it.
	Continue
	// Complete: the prompt ends after the last message, which is closed if it is the
	// assistant's. This is the conversation as training sees it.
	Complete
)

// Options say how a conversation is written and answered. The zero value asks for an
// answer without reasoning and without functions.
type Options struct {
	Thinking bool
	// Effort is how hard the model should think, in thinking mode: "", "none", "minimal",
	// "low", "medium", "high", "xhigh", "max" or "ultra"; formats with a scale take
	// numbers. Each format's Template says what it makes of it.
	Effort string
	Ending Ending

	Functions []Function // offered to the model
	Choice    Choice
	Single    bool            // at most one call per answer
	Schema    json.RawMessage // of the answer, shown to the model; nil: none
}

// Conversation is a conversation that the model should answer.
type Conversation struct {
	Messages []Message
	Options
}

// The two kinds of errors. Errors of this package wrap one of them, and
// those about the conversation are of type *Error.
var (
	// ErrInvalid: the conversation or an option makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: the format cannot express the conversation.
	ErrUnsupported = errors.New("unsupported")
)

// Error says what is wrong with which part of a conversation.
type Error struct {
	Kind    error  // ErrInvalid or ErrUnsupported
	Field   string // "messages", "messages[2].role", "effort", ...
	Message string // what is wrong and what would be right
}

// Error returns "chat: FIELD: MESSAGE".
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Message) }

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }

func invalid(field, format string, args ...any) error {
	return &Error{ErrInvalid, field, fmt.Sprintf(format, args...)}
}

func unsupported(field, format string, args ...any) error {
	return &Error{ErrUnsupported, field, fmt.Sprintf(format, args...)}
}
