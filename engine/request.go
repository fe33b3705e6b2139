package engine

import (
	"context"
	"errors"
	"slices"

	"ringmaster/engine/drafts"
)

// Errors of Submit and of Stream.Next. Each is wrapped with the details.
var (
	// ErrBusy: the queue is full; try again later.
	ErrBusy = errors.New("the queue is full")
	// ErrShare is an ErrBusy of one tenant: its requests take up its share of the queue,
	// and the rest is for others.
	ErrShare = errors.New("the tenant's share of the queue is full")
	// ErrTooMany: SubmitAll got more requests than can run and wait at the same time.
	ErrTooMany = errors.New("too many requests at once")
	// ErrTooLong: the prompt leaves no room in the context.
	ErrTooLong = errors.New("the prompt does not fit the context")
	// ErrTooLarge: the KV cache of the request alone exceeds the budget for all
	// sequences.
	ErrTooLarge = errors.New("the request needs more memory than the budget")
	// ErrInvalid: a parameter is out of range.
	ErrInvalid = errors.New("invalid request")
	// ErrClosed: the engine is shutting down.
	ErrClosed = errors.New("the engine is closed")
	// ErrFailed: the model failed; the engine generates no more tokens.
	ErrFailed = errors.New("the model failed")
	// ErrUnavailable: the model cannot run steps at the moment and has lost the running
	// requests. It accepts requests again once it is available.
	ErrUnavailable = errors.New("the model is not available")
	// ErrNoMemory: the model has no memory for the KV cache of this request;
	// other requests continue.
	ErrNoMemory = errors.New("out of memory")
	// ErrStorage: a step of this request could not read what it needs of the model's file.
	ErrStorage = errors.New("the model's file cannot be read")
	// ErrConstraint: the constraint allows no token that continues the answer; other
	// requests continue.
	ErrConstraint = errors.New("the constraint of the answer cannot be met")
	// ErrNonFinite: a logit of this request is NaN or infinite, so no token
	// can be sampled; other requests continue. See NonFiniteError.
	ErrNonFinite = errors.New("the model's output is not finite")
)

// Sampling says how a token is sampled from a row of logits; see sampler for the order of
// the rules.
type Sampling struct {
	Temperature      float64 // 0: greedy
	TopK             int     // 0: off
	TopP             float64 // 1 (or 0): off
	MinP             float64 // 0: off
	PresencePenalty  float64
	FrequencyPenalty float64
	LogitBias        map[int32]float64
	// Seed makes an answer repeatable: same model, request and seed give the
	// same text. nil: a random one.
	Seed *uint64
}

// Request asks for one continuation of a prompt.
type Request struct {
	Prompt []int32
	// Branches are lengths of Prompt, in tokens, after which other requests are likely to
	// differ: the end of the system prompt with the tools, then of each turn. They are
	// strictly ascending, from 1 to the length of Prompt. The engine takes checkpoints at
	// some of them. nil: not known.
	Branches []int
	Sampling Sampling
	// MaxTokens is the most tokens to generate. Their memory is reserved before the
	// request begins, so that it cannot fail for lack of memory later. 0: as many as fit
	// the context and, as the answer grows, the memory.
	MaxTokens int
	MinTokens int      // end tokens and stop strings have no effect before that
	Stop      []string // texts that end the answer and are not part of it
	IgnoreEOS bool     // end tokens do not end the answer

	// StopsIn, if set, reports whether stop strings count in the text of the next token,
	// given its bytes; it is called for each token of the answer in turn, perhaps at the same
	// time as those of other requests. nil: always.
	StopsIn func(token []byte) bool
	// Visible maps control tokens that are part of the answer's text to their texts
	// there.
	Visible map[int32]string
	// Banned are ids that are not sampled unless nothing else is left.
	Banned []int32
	// Constraint says which tokens the answer may have; nil: all. It serves this request
	// only.
	Constraint Constraint

	Logprobs    bool // set Token.Logprob
	TopLogprobs int  // number of alternatives in Token.Top, at most MaxTopLogprobs
	// CacheScope limits prefix-cache hits to sequences of requests with the same value,
	// because otherwise Usage.Cached and the time to the first token would tell whether
	// another client has sent the prompt before.
	CacheScope string
	// CacheGroup is an opaque name of the request's conversation or program within its
	// scope: conversations of a group that wait for results of functions stay in the
	// prefix cache while others of the group run. "": not known. It is never logged.
	CacheGroup string
	// CacheMarked says that the client wants the prompt to stay in the prefix cache.
	CacheMarked bool

	// Related, if set, returns texts apart from the prompt that the answer may repeat: they
	// are drafts for speculative decoding, which changes no answer. It is called at most
	// once, in a goroutine of its own, while the request runs, and not without a Drafter.
	Related func(ctx context.Context) []RelatedText

	// NoDrafts turns speculative decoding off for this request.
	NoDrafts bool

	// Tenant is an opaque name of the client. Tenants share the places, the queue and the
	// tokens of the steps fairly. Requests without one are one tenant that may fill the
	// whole queue. It is never logged.
	Tenant string
	// Weight is the share of the tenant in the tokens of the steps, 1 to MaxWeight; 0 is
	// 1. That of the tenant's last request counts.
	Weight int

	PromptLogprobs bool // the same for the prompt's tokens, in Event.Prompt; no prefix-cache hit
}

// clone copies the parts of a request that the engine keeps.
func (r Request) clone() Request {
	r.Prompt, r.Branches = slices.Clone(r.Prompt), slices.Clone(r.Branches)
	r.Stop = slices.Clone(r.Stop)
	bias := make(map[int32]float64, len(r.Sampling.LogitBias))
	for id, b := range r.Sampling.LogitBias {
		bias[id] = b
	}
	r.Sampling.LogitBias = bias
	return r
}

// RelatedText is a text that an answer may repeat, as tokens.
type RelatedText struct {
	Source drafts.Source // Text or Prediction
	Tokens []int32
}

// Token is one token of an answer, or of a prompt.
type Token struct {
	ID      int32
	Bytes   []byte        // text of the token; may be part of a UTF-8 sequence
	Logprob float64       // natural logarithm; with Request.Logprobs only
	Top     []Alternative // most likely first; with Request.TopLogprobs only
}

// Alternative is one of the most likely tokens at a position.
type Alternative struct {
	ID      int32
	Bytes   []byte
	Logprob float64 // natural logarithm
}

// FinishReason says why an answer ended.
type FinishReason string

// The reasons.
const (
	FinishNone   FinishReason = ""       // not ended yet
	FinishStop   FinishReason = "stop"   // end token or stop string
	FinishLength FinishReason = "length" // MaxTokens or the context is used up
)

// Usage counts tokens.
type Usage struct {
	Prompt     int // tokens of the prompt
	Cached     int // of these, not run because of a prefix-cache hit
	Completion int // tokens generated, the end token included
	// Drafts from a prediction of the client that the answer has, and that it has not.
	Accepted, Rejected int
}

// Event is a piece of an answer.
type Event struct {
	// Text is complete UTF-8 that can no longer become part of a stop string. The
	// concatenated texts of all events are the answer.
	Text string
	// Tokens are the tokens that end in Text. They include a token that lies partly in
	// the stop string, but neither a token that lies entirely in it nor the end token
	// that ended the answer. Usage.Completion counts all of them.
	Tokens []Token
	// Prompt has the prompt's tokens, with Request.PromptLogprobs, in the first event
	// that has more than Progress. The first token has no context, so its Logprob is 0
	// and has no meaning.
	Prompt []Token
	Finish FinishReason
	// StopText is the stop string that ended the answer, if one did.
	StopText string
	Usage    Usage // so far; final in the last event
	// Progress is the progress of the prefill. An event sent during the prefill has no
	// text or tokens.
	Progress Progress
}

// Progress is how much of a prompt has run, in tokens.
type Progress struct{ Done, Total int }

// Vocabulary is what the engine needs of a tokenizer.
type Vocabulary interface {
	// Size returns the number of token ids.
	Size() int
	// Bytes returns the text of a token: possibly part of a UTF-8 sequence, empty for a
	// token without text (BOS, EOS, padding).
	Bytes(id int32) []byte
	// IsEnd reports whether the token ends an answer.
	IsEnd(id int32) bool
}
