// Package apitest provides a byte-level vocabulary for tests of package api and
// its clients: a token for each byte, and the control tokens of a conversation.
package apitest

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// The ids of the control tokens.
const (
	BOS int32 = 256 + iota
	EOS
	User
	Assistant
	Think
	ThinkEnd
	Pad
	// Size is the number of ids.
	Size
)

// names of the control tokens; their ids start at 256.
var names = []string{
	"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜▁pad▁｜>",
}

// Tokenizer implements the tokenizer interfaces of packages api and engine. The zero
// value is ready to use.
type Tokenizer struct{}

// Encode returns an id for each byte; with special, the names of control tokens
// become their ids.
func (Tokenizer) Encode(text string, special bool) []int32 {
	ids := make([]int32, 0, len(text))
next:
	for len(text) > 0 {
		for i, name := range names {
			if special && strings.HasPrefix(text, name) {
				ids = append(ids, int32(256+i))
				text = text[len(name):]
				continue next
			}
		}
		ids = append(ids, int32(text[0]))
		text = text[1:]
	}
	return ids
}

// EncodeContext is Encode, but fails if ctx has ended.
func (t Tokenizer) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.Encode(text, special), nil
}

// Decode returns the text of ids; invalid UTF-8 becomes U+FFFD.
func (t Tokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, t.Bytes(id)...)
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// Bytes returns the byte of an id. Among the control tokens only the two around the
// reasoning have text.
func (Tokenizer) Bytes(id int32) []byte {
	switch {
	case id >= 0 && id < 256:
		return []byte{byte(id)}
	case id == Think || id == ThinkEnd:
		return []byte(names[id-256])
	}
	return nil
}

// Text returns the name of a control token, or the byte as a string.
func (Tokenizer) Text(id int32) string {
	switch {
	case id < 0 || id >= Size:
		return ""
	case id < 256:
		return string(rune(id))
	}
	return names[id-256]
}

// ID is the inverse of Text.
func (t Tokenizer) ID(name string) (int32, bool) {
	if i := slices.Index(names, name); i >= 0 {
		return int32(256 + i), true
	}
	if r := []rune(name); len(r) == 1 && r[0] < 256 {
		return int32(r[0]), true
	}
	return 0, false
}

// BOS returns the token that begins a sequence.
func (Tokenizer) BOS() (int32, bool) { return BOS, true }

// EOS returns the token that ends an answer.
func (Tokenizer) EOS() (int32, bool) { return EOS, true }

// AddBOS is true.
func (Tokenizer) AddBOS() bool { return true }

// Size is the number of ids.
func (Tokenizer) Size() int { return int(Size) }

// Added is true for the control tokens.
func (Tokenizer) Added(id int32) bool { return id >= 256 }

// IsEnd is true for EOS.
func (Tokenizer) IsEnd(id int32) bool { return id == EOS }
