package dialect

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"ringmaster/api/run"
	"ringmaster/model/chat"
)

// Tokenizer is the part of a vocabulary that the handlers use.
type Tokenizer interface {
	// EncodeContext splits text into token ids. With special, the names of control tokens
	// in the text become those tokens; otherwise they are ordinary text. It returns ctx's
	// error soon after ctx has ended.
	EncodeContext(ctx context.Context, text string, special bool) ([]int32, error)
	// Decode returns the text of ids; incomplete UTF-8 becomes U+FFFD.
	Decode(ids []int32) string
	// Bytes returns the bytes that a token adds to the text; none for a
	// control token.
	Bytes(id int32) []byte
	// Text returns the name of a token, including control tokens.
	Text(id int32) string
	// ID looks a token up by its name.
	ID(name string) (int32, bool)
	// BOS is the token that begins a sequence, if the vocabulary has one.
	BOS() (int32, bool)
	// AddBOS reports whether a plain-text prompt must start with BOS.
	AddBOS() bool
	// Size is the number of ids.
	Size() int
	// Added reports whether a token was added to the vocabulary: a control token or a
	// marker, which is never merged from other tokens.
	Added(id int32) bool
	// IsEnd reports whether the token ends a completion.
	IsEnd(id int32) bool
}

// Model describes the served model to clients.
type Model struct {
	ID            string
	Aliases       []string  // further names, shown by /v1/models
	Created       time.Time // shown by /v1/models
	ContextLength int       // tokens; shown by /v1/models when not 0
	OwnedBy       string    // "": "ringmaster"
	// Fingerprint identifies weights and settings: the same fingerprint, seed and request
	// give the same text. "": "fp_ringmaster".
	Fingerprint string
	// Format is how the model writes conversations; nil: that of DeepSeek V4.
	Format *chat.Format
	File   File
}

// File describes the file of a model, for the APIs that show it. The zero value describes
// a model without a file.
type File struct {
	Architecture string
	Parameters   int64  // numbers in all tensors
	Bytes        int64  // of all parts
	Digest       string // SHA-256 in hexadecimal, which tells models apart
	// Quantization is the type of the tensors with most of the bytes: "Q4_K".
	Quantization string
	OnGPU        bool // the tensors are in the memory of a GPU
	// Metadata are strings, booleans, integers and finite floats by their keys.
	Metadata map[string]any
}

// Service holds what the dialects need to know about the server.
type Service struct {
	Model         Model
	Tokenizer     Tokenizer
	MaxTokenBytes int // of the text of a token: MaxTokenBytes of Tokenizer

	StrictNames bool // requests must use a name of Model, or "default"
	MaxChoices  int  // largest number of answers to a prompt
	MaxPrompts  int  // most prompts in one text completion request
	MaxMessages int  // most messages in a conversation

	Replays  *run.Replays // of answers with calls
	Grammars *Grammars

	Now   func() time.Time
	NewID func() string
}

// ModelName reads the name of the model that a request asks for; the answer repeats it.
// It fails f unless the server serves a model of this name.
func (s *Service) ModelName(f *Fields) string {
	name := f.String("model", "")
	if name == "" {
		return s.Model.ID
	}
	return s.CheckName(f, "model", name)
}

// CheckName returns the name of a model from a field, and fails f unless the server
// serves a model of this name.
func (s *Service) CheckName(f *Fields, field, name string) string {
	switch {
	case len(name) > MaxModelName:
		f.Fail(Invalid(field, "invalid_value", "'%s' has %d bytes; at most %d are allowed.", field, len(name), MaxModelName))
	case !s.Serves(name):
		f.Fail(s.NoModel(name))
	}
	return name
}

// MaxModelName bounds a name in bytes, because every part of a stream repeats it.
const MaxModelName = 256

// Serves reports whether requests may use a name. Any name is valid unless StrictNames is
// set, because many clients have one built in.
func (s *Service) Serves(name string) bool {
	return !s.StrictNames || name == s.Model.ID || name == "default" || slices.Contains(s.Model.Aliases, name)
}

// NoModel returns the error for an unknown name.
func (s *Service) NoModel(name string) *Error {
	return &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("The model '%s' does not exist; this server serves '%s'.", name, s.Model.ID)}
}

// MaxIDs limits the token ids of a list in a request. The context holds one less together
// with an answer, but the engine's error for that is better.
func (s *Service) MaxIDs() int {
	if s.Model.ContextLength > 0 {
		return s.Model.ContextLength
	}
	return math.MaxInt32
}

// TokenIDs reads an array of token ids and checks that the vocabulary has them.
func (s *Service) TokenIDs(f *Fields, param string, raw json.RawMessage) []int32 {
	most := s.MaxIDs()
	n := Count(raw, most)
	if n > most {
		f.Fail(&Error{Status: http.StatusBadRequest, Param: param, Code: "context_length_exceeded",
			Message: fmt.Sprintf("'%s' has more token ids than the context holds (%d).", param, most)})
		return nil
	}
	ids := make([]int32, n)
	for i, item := range Elements(raw) {
		if i%1024 == 0 && f.Cancelled() {
			return nil
		}
		if KindOf(item) != "number" {
			f.Fail(Invalid(param, "invalid_type", "'%s[%d]' must be a token id, not %s.", param, i, Article(KindOf(item))))
			return nil
		}
		id, ok := WholeNumber(item)
		if !ok || id < 0 || id >= int64(s.Tokenizer.Size()) {
			f.Fail(Invalid(param, "invalid_value", "'%s[%d]' must be a token id from 0 to %d, not %s.", param, i, s.Tokenizer.Size()-1, Excerpt(item)))
			return nil
		}
		ids[i] = int32(id)
	}
	return ids
}

// Logprob clamps a log-probability to what JSON can express; minus infinity becomes
// minLogprob.
func Logprob(v float64) float64 {
	if math.IsNaN(v) || v < minLogprob {
		return minLogprob
	}
	return v
}

// minLogprob replaces minus infinity because JSON cannot express it.
const minLogprob = -9999
