package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Bytes returns what a token adds to the text that is shown: possibly part of a UTF-8
// sequence; nothing for control tokens (BOS, EOS, padding), for unused ones and for an
// unknown id. User-defined tokens such as "</think>" show their text. The caller must not
// write to it.
func (t *Tokenizer) Bytes(id int32) []byte { return at(t.bytes, id) }

// Raw returns what a token stands for, shown or not: Bytes for most, the marker's text
// for a control token. Raw of all ids of Encode(text) is text again, byte for byte. The
// caller must not write to it.
func (t *Tokenizer) Raw(id int32) []byte { return at(t.raw, id) }

// Decode returns the text that the tokens show (Bytes). Invalid UTF-8 becomes U+FFFD, one
// for each maximal prefix of a sequence. For any valid text x without control tokens,
// Decode(Encode(x)) is x.
func (t *Tokenizer) Decode(ids []int32) string {
	var out strings.Builder
	d := t.NewDecoder()
	for _, id := range ids {
		out.WriteString(d.Push(id))
	}
	out.WriteString(d.Flush())
	return out.String()
}

// Decoder decodes a stream of tokens. It holds back an incomplete UTF-8
// sequence until the rest arrives, so that every text it returns is valid, and
// all of them together are what Decode returns for the same ids.
type Decoder struct {
	t    *Tokenizer
	held []byte // an incomplete UTF-8 sequence, at most 3 bytes
}

// NewDecoder starts a stream.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Push returns the text that is complete after one more token; often empty.
func (d *Decoder) Push(id int32) string { return d.push(d.t.Bytes(id)) }

func (d *Decoder) push(b []byte) string {
	if len(d.held) == 0 && utf8.Valid(b) {
		return string(b)
	}
	data := append(d.held, b...)
	var out strings.Builder
	for len(data) > 0 && utf8.FullRune(data) {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			n = badPrefix(data)
		}
		out.WriteRune(r)
		data = data[n:]
	}
	d.held = append(d.held[:0], data...)
	return out.String()
}

// Flush ends the stream: it returns U+FFFD if the stream ended within a sequence,
// otherwise nothing. After that the Decoder can start a new stream.
func (d *Decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return string(utf8.RuneError)
}

// badPrefix returns how many bytes one U+FFFD replaces if data begins with no valid
// sequence: as many as could have begun one, at least one.
func badPrefix(data []byte) int {
	n := 1
	for !utf8.FullRune(data[:n]) && !utf8.FullRune(data[:n+1]) {
		n++
	}
	return n
}
