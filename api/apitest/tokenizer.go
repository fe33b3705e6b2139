// Package apitest has a vocabulary for tests of the api and of its clients: a
// token for each byte, and the markers of a conversation.
package apitest

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The ids of the markers.
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

// names are the markers from 256 on.
var names = []string{
	"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜▁pad▁｜>",
}

// Tokenizer has the methods of tokenizer.Tokenizer that the api, the engine
// and package prompt need. The zero value is ready.
type Tokenizer struct{}

// Encode gives an id for each byte; with special, markers become their ids.
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

// Decode is the text of ids; bytes that are no UTF-8 become U+FFFD.
func (t Tokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, t.Bytes(id)...)
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// Bytes is the byte of an id; of the markers the two of reasoning show
// their text.
func (Tokenizer) Bytes(id int32) []byte {
	switch {
	case id >= 0 && id < 256:
		return []byte{byte(id)}
	case id == Think || id == ThinkEnd:
		return []byte(names[id-256])
	}
	return nil
}

// Text is the name of a marker, or the byte as a string.
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

// BOS is the first of the markers.
func (Tokenizer) BOS() (int32, bool) { return BOS, true }

// EOS is the second of the markers.
func (Tokenizer) EOS() (int32, bool) { return EOS, true }

// AddBOS is true.
func (Tokenizer) AddBOS() bool { return true }

// Size is the number of ids.
func (Tokenizer) Size() int { return int(Size) }

// IsEnd is true for EOS.
func (Tokenizer) IsEnd(id int32) bool { return id == EOS }
