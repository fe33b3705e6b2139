// Package tokenizer turns text into the token ids of a model file and back: FromGGUF or
// New makes a Tokenizer, Encode and Decode convert (see the example).
//
// It is a byte-level BPE. Added tokens ("<｜User｜>", "</think>") are extracted from the
// text first. Expressions over Unicode classes (one set for each family, pretokenizer.go)
// split the text between them into words, and the bytes of each word are merged pair by
// pair in the order of the file's merge list (bpe.go). There is no normalisation and no
// prefix space, so that any text, even invalid UTF-8, round-trips byte for byte.
//
// A Tokenizer is immutable after New and safe for concurrent use. A Decoder belongs to
// one stream.
package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrVocabulary is wrapped by every error of New and FromGGUF. The message
// names the GGUF key and what is wrong with it.
var ErrVocabulary = errors.New("tokenizer")

// Type is the kind of a token, numbered as in tokenizer.ggml.token_type.
type Type int32

// The kinds of tokens.
const (
	Normal      Type = 1 // made by merges
	Unknown     Type = 2
	Control     Type = 3 // added; matched in text; shows nothing
	UserDefined Type = 4 // added; matched in text; shows its text
	Unused      Type = 5 // fills up the table; never matched; shows nothing
	Byte        Type = 6
)

// Vocab is what a model file says about its tokens. The names in the comments
// are the GGUF keys.
type Vocab struct {
	Model  string   // tokenizer.ggml.model, must be "gpt2"
	Pre    string   // tokenizer.ggml.pre, must be one of Pretokenizers
	Tokens []string // tokenizer.ggml.tokens, by id
	Types  []Type   // tokenizer.ggml.token_type, by id; nil: all Normal
	Merges []string // tokenizer.ggml.merges, "left right", best first; may be missing for kimi-k2

	BOS, EOS, Pad *int32 // tokenizer.ggml.{bos,eos,padding}_token_id; nil: not in the file
	EOT, EOM      *int32 // tokenizer.ggml.{eot,eom}_token_id, which end a turn and a message; nil: not in the file
	AddBOS        bool   // tokenizer.ggml.add_bos_token
}

// Tokenizer is the vocabulary of one model.
type Tokenizer struct {
	split  splitter
	tokens []string         // text of each id in the file
	types  []Type           // by id
	bytes  [][]byte         // what each id shows; empty for control and unused
	raw    [][]byte         // what each id stands for, shown or not
	ids    map[string]int32 // by text in the file
	byteID [256]int32       // token of a single byte
	merges map[pair]merge
	added  trie
	ends   map[int32]bool

	bos, eos, pad *int32
	addBOS        bool
}

// New checks a vocabulary and makes a Tokenizer from it. It keeps v's slices.
func New(v Vocab) (*Tokenizer, error) {
	if v.Model != "gpt2" {
		return nil, vocabError("tokenizer.ggml.model is %q; only %q (byte-level BPE) is supported", v.Model, "gpt2")
	}
	split, err := splitterOf(v.Pre)
	if err != nil {
		return nil, err
	}
	if len(v.Tokens) == 0 {
		return nil, vocabError("tokenizer.ggml.tokens is missing or empty")
	}
	if v.Types != nil && len(v.Types) != len(v.Tokens) {
		return nil, vocabError("tokenizer.ggml.token_type has %d entries for %d tokens", len(v.Types), len(v.Tokens))
	}
	if len(v.Merges) == 0 && v.Pre != rankedPre {
		return nil, vocabError("tokenizer.ggml.merges is missing or empty")
	}
	t := &Tokenizer{
		tokens: v.Tokens, types: v.Types, addBOS: v.AddBOS,
		bos: v.BOS, eos: v.EOS, pad: v.Pad,
		split: split,
		ids:   make(map[string]int32, len(v.Tokens)),
		ends:  map[int32]bool{},
	}
	if err := t.readTokens(); err != nil {
		return nil, err
	}
	if len(v.Merges) == 0 {
		t.rankMerges()
	} else if err := t.readMerges(v.Merges); err != nil {
		return nil, err
	}
	return t, t.readMarkers(v)
}

// readTokens fills ids, bytes, raw, byteID and added from tokens and types.
func (t *Tokenizer) readTokens() error {
	if t.types == nil {
		t.types = slices.Repeat([]Type{Normal}, len(t.tokens))
	}
	t.raw = make([][]byte, len(t.tokens))
	t.bytes = make([][]byte, len(t.tokens))
	for i, text := range t.tokens {
		id := int32(i)
		// If two tokens have the same text, Encode produces the first.
		if _, twice := t.ids[text]; !twice {
			t.ids[text] = id
		}
		switch t.types[i] {
		case Normal:
			t.raw[i] = unmapBytes(text)
			t.bytes[i] = t.raw[i]
		case UserDefined:
			t.raw[i] = []byte(text)
			t.bytes[i] = t.raw[i]
			t.added.insert(text, id)
		case Control:
			t.raw[i] = []byte(text)
			t.added.insert(text, id)
		case Unknown, Unused, Byte:
			t.raw[i] = []byte(text)
		default:
			return vocabError("tokenizer.ggml.token_type of token %d is %d; known are 1 to 6", id, t.types[i])
		}
	}
	for b := range t.byteID {
		id, ok := t.ids[string(byteRune[b])]
		if !ok {
			return vocabError("tokenizer.ggml.tokens has no token %q for the byte 0x%02X, so some texts could not be encoded", byteRune[b], b)
		}
		t.byteID[b] = id
	}
	return nil
}

// readMerges fills merges. Both parts of a merge and its result must be tokens.
func (t *Tokenizer) readMerges(lines []string) error {
	t.merges = make(map[pair]merge, len(lines))
	for rank, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return vocabError("tokenizer.ggml.merges[%d] is %q; expected two parts with one space between them", rank, line)
		}
		var ids [3]int32
		for i, part := range [3]string{left, right, left + right} {
			id, ok := t.ids[part]
			if !ok {
				return vocabError("tokenizer.ggml.merges[%d] is %q, but %q is not in tokenizer.ggml.tokens", rank, line, part)
			}
			ids[i] = id
		}
		key := pairOf(ids[0], ids[1])
		if _, twice := t.merges[key]; !twice { // the better rank counts
			t.merges[key] = merge{rank: int32(rank), id: ids[2]}
		}
	}
	return nil
}

// rankedPre is the one pre-tokenizer with files that may lack merges: its vocabulary is a
// table of ranks, where the id of a token is its rank.
const rankedPre = "kimi-k2"

// rankMerges fills merges from the ids of the tokens: two tokens merge if their
// texts together are a token, and its id is the rank.
func (t *Tokenizer) rankMerges() {
	t.merges = make(map[pair]merge, len(t.tokens))
	for i, text := range t.tokens {
		id := int32(i)
		if t.types[i] != Normal || t.ids[text] != id {
			continue
		}
		for cut := range text {
			left, ok := t.ids[text[:cut]]
			right, ok2 := t.ids[text[cut:]]
			if ok && ok2 && t.types[left] == Normal && t.types[right] == Normal {
				t.merges[pairOf(left, right)] = merge{rank: id, id: id}
			}
		}
	}
}

// endTexts are the tokens that end an answer besides EOS, if they are added tokens.
var endTexts = []string{
	"<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", // DeepSeek
	"[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", // Kimi
	"<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>", // GLM
}

// readMarkers checks the ids of the marker tokens that a file names and collects the tokens
// that end an answer.
func (t *Tokenizer) readMarkers(v Vocab) error {
	for _, m := range []struct {
		key string
		id  *int32
	}{{"bos", t.bos}, {"eos", t.eos}, {"padding", t.pad}, {"eot", v.EOT}, {"eom", v.EOM}} {
		if m.id != nil && (*m.id < 0 || int(*m.id) >= len(t.tokens)) {
			return vocabError("tokenizer.ggml.%s_token_id is %d, but there are %d tokens", m.key, *m.id, len(t.tokens))
		}
	}
	// EOS ends an answer. Some files name another token as EOS than the one that ends a
	// turn. The others begin a turn or a conversation: a model that generates one has
	// left its own turn.
	for _, id := range []*int32{t.eos, t.bos, v.EOT, v.EOM} {
		if id != nil {
			t.ends[*id] = true
		}
	}
	for _, text := range endTexts {
		if id, ok := t.ids[text]; ok && t.Added(id) {
			t.ends[id] = true
		}
	}
	return nil
}

func vocabError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrVocabulary, fmt.Sprintf(format, args...))
}

// Added reports whether a token is matched as a whole in text because it was added to the
// vocabulary.
func (t *Tokenizer) Added(id int32) bool {
	return t.types[id] == Control || t.types[id] == UserDefined
}

// Size returns the number of token ids.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID finds a token by its text in the file: an added token literally ("</think>"), any
// other one in the byte-to-character form ("Ġthe").
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Text returns the token's text in the file, the inverse of ID; "" for an unknown id.
func (t *Tokenizer) Text(id int32) string { return at(t.tokens, id) }

// Type returns the kind of a token; Unknown for an unknown id.
func (t *Tokenizer) Type(id int32) Type { return cmp.Or(at(t.types, id), Unknown) }

// BOS returns the token that begins every prompt, if the file names one.
func (t *Tokenizer) BOS() (int32, bool) { return orNone(t.bos) }

// EOS returns the token that ends every answer, if the file names one.
func (t *Tokenizer) EOS() (int32, bool) { return orNone(t.eos) }

// Pad returns the padding token, if the file names one.
func (t *Tokenizer) Pad() (int32, bool) { return orNone(t.pad) }

// AddBOS reports whether the file asks for BOS before a plain text. A rendered
// chat prompt already has its BOS; Encode never adds one.
func (t *Tokenizer) AddBOS() bool { return t.addBOS }

// IsEnd reports whether a token ends an answer: EOS, its family's other tokens for that,
// and BOS and the markers of user and assistant, so that a model that continues into the
// next turn stops. "</think>" does not end an answer.
func (t *Tokenizer) IsEnd(id int32) bool { return t.ends[id] }

// at returns what a list by id has for a token, the zero value for an unknown id.
func at[E any](list []E, id int32) (e E) {
	if id >= 0 && int(id) < len(list) {
		e = list[id]
	}
	return e
}

func orNone(id *int32) (int32, bool) {
	if id == nil {
		return 0, false
	}
	return *id, true
}
