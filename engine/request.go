package engine

import "errors"

// Errors of Submit, and ends of a Stream. Each is wrapped with what the caller
// needs to know.
var (
	// ErrBusy: the queue is full; try again after a while.
	ErrBusy = errors.New("engine: queue is full")
	// ErrTooLong: the prompt leaves no room in the context.
	ErrTooLong = errors.New("engine: prompt does not fit the context")
	// ErrInvalid: a parameter is out of range.
	ErrInvalid = errors.New("engine: invalid request")
	// ErrClosed: the engine is shutting down.
	ErrClosed = errors.New("engine: closed")
	// ErrFailed: the model failed; the engine makes no more tokens.
	ErrFailed = errors.New("engine: model failed")
	// ErrUnavailable: the model runs no steps now and has lost what ran; it
	// may come back, and requests are taken again then.
	ErrUnavailable = errors.New("engine: the model is not available")
	// ErrNoMemory ends a stream whose sequence the model has no memory for;
	// the others go on.
	ErrNoMemory = errors.New("engine: out of memory")
)

// Sampling says how a token is drawn from a row of logits.
type Sampling struct {
	Temperature      float64 // 0: greedy
	TopK             int     // 0: off
	TopP             float64 // 1 (or 0): off
	MinP             float64 // 0: off
	PresencePenalty  float64
	FrequencyPenalty float64
	LogitBias        map[int32]float64
	// Seed makes a run repeatable: same request, same seed, same text.
	// nil draws one at random.
	Seed *uint64
}

// Request asks for one continuation of a prompt.
type Request struct {
	Prompt    []int32
	Sampling  Sampling
	MaxTokens int      // most new tokens; 0: as many as the context holds
	MinTokens int      // the end token and stop strings are held off until then
	Stop      []string // texts that end the answer; not part of it
	IgnoreEOS bool

	Logprobs       bool // give Token.Logprob
	TopLogprobs    int  // and so many alternatives, at most 20
	PromptLogprobs bool // the same for the prompt's tokens, in Event.Prompt
}

// Token is one token of an answer, or of a prompt.
type Token struct {
	ID      int32
	Bytes   []byte  // what the token stands for; may be part of a UTF-8 sequence
	Logprob float64 // natural logarithm; with Request.Logprobs only
	Top     []Alternative
}

// Alternative is one of the most likely tokens at a place.
type Alternative struct {
	ID      int32
	Bytes   []byte
	Logprob float64
}

// FinishReason says why an answer ended.
type FinishReason string

// The reasons of an end.
const (
	FinishNone   FinishReason = ""       // not ended yet
	FinishStop   FinishReason = "stop"   // end token or stop string
	FinishLength FinishReason = "length" // MaxTokens or the context is used up
)

// Usage counts tokens.
type Usage struct {
	Prompt     int // tokens of the prompt
	Cached     int // of these, taken from a live session
	Completion int // tokens made, the end token included
}

// Event is a piece of an answer.
type Event struct {
	// Text is whole UTF-8 that no stop string can take back any more. The
	// texts of all events put together are the answer.
	Text string
	// Tokens are those whose last byte is in Text. The tokens of all events
	// put together are the answer; one that a stop string cuts is there
	// whole, one that lies in it wholly is not, nor is the end token that
	// ended the answer. Usage.Completion counts them all.
	Tokens []Token
	// Prompt is set with Request.PromptLogprobs, in the first event that is
	// not of Progress only, and in no other. Nothing comes before the first
	// token, so its Logprob is 0 and says nothing.
	Prompt []Token
	Finish FinishReason
	// StopText is the stop string that ended the answer, if one did.
	StopText string
	Usage    Usage // so far; final in the last event
	// Progress is the part of the prompt run so far, while it runs (an event
	// without text or tokens).
	Progress Progress
}

// Progress is how much of a prompt has been run.
type Progress struct{ Done, Total int }

// Vocabulary is what the engine needs of a tokenizer.
type Vocabulary interface {
	// Size is the number of token ids.
	Size() int
	// Bytes is what a token adds to the text; possibly part of a UTF-8
	// sequence, empty for a token that shows nothing (BOS, EOS, padding).
	Bytes(id int32) []byte
	// IsEnd reports whether the token ends an answer.
	IsEnd(id int32) bool
}
