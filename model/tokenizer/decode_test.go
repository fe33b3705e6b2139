package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestBytesAndRaw(t *testing.T) {
	tok := golden(t)
	v := byteVocab()
	v.Tokens = append(v.Tokens, "<end>", "</think>", "<unused>", "ĠÄ", "<｜x｜>")
	v.Types = append(v.Types, Control, UserDefined, Unused, Normal, Normal)
	small, err := New(v)
	require.NoError(t, err)
	for _, c := range []struct {
		tok        *Tokenizer
		token      string
		bytes, raw string
	}{
		{tok, "Ġthe", " the", " the"},
		{tok, "ä½łå¥½", "你好", "你好"},
		{tok, "<｜User｜>", "<｜User｜>", "<｜User｜>"},
		{tok, "<｜end▁of▁sentence｜>", "", "<｜end▁of▁sentence｜>"},
		{small, "<end>", "", "<end>"},
		{small, "</think>", "</think>", "</think>"},
		{small, "<unused>", "", "<unused>"},
		{small, "ĠÄ", " \xc4", " \xc4"},    // half a character
		{small, "<｜x｜>", "<｜x｜>", "<｜x｜>"}, // a normal token with a literal text
	} {
		id, ok := c.tok.ID(c.token)
		require.True(t, ok, c.token)
		require.Equal(t, c.bytes, string(c.tok.Bytes(id)), c.token)
		require.Equal(t, c.raw, string(c.tok.Raw(id)), c.token)
		require.Equal(t, c.token, c.tok.Text(id))
	}
	for _, id := range []int32{-1, int32(tok.Size()), 1 << 30} {
		require.Empty(t, tok.Bytes(id))
		require.Empty(t, tok.Raw(id))
		require.Empty(t, tok.Text(id))
		require.Equal(t, Unknown, tok.Type(id))
		require.False(t, tok.IsEnd(id))
	}
}

func TestDecoderHoldsBackHalves(t *testing.T) {
	for _, c := range []struct {
		name  string
		push  []string // bytes of each token
		want  []string // text after each
		flush string
	}{
		{"whole", []string{"a", "é漢😀"}, []string{"a", "é漢😀"}, ""},
		{"two bytes", []string{"\xc3", "\xa9"}, []string{"", "é"}, ""},
		{"three bytes", []string{"x\xe6", "\xbc", "\xa2y"}, []string{"x", "", "漢y"}, ""},
		{"four bytes", []string{"\xf0", "\x9f", "\x98", "\x80"}, []string{"", "", "", "😀"}, ""},
		{"next one begins", []string{"\xc3", "\xa9\xe6\xbc", "\xa2"}, []string{"", "é", "漢"}, ""},
		{"never ends", []string{"a\xf0\x9f"}, []string{"a"}, "\ufffd"},
		{"broken off", []string{"\xe6\xbc", "a"}, []string{"", "\ufffda"}, ""},
		{"broken off by another", []string{"\xe6\xbc", "\xe6", "\xbc\xa2"}, []string{"", "\ufffd", "漢"}, ""},
		{"no beginning", []string{"\x80\x80", "\xff"}, []string{"\ufffd\ufffd", "\ufffd"}, ""},
		{"surrogate", []string{"\xed\xa0\x80"}, []string{"\ufffd\ufffd\ufffd"}, ""},
		{"too long a form", []string{"\xc0\xaf"}, []string{"\ufffd\ufffd"}, ""},
		{"a true U+FFFD", []string{"\xef\xbf", "\xbd"}, []string{"", "\ufffd"}, ""},
		{"nothing shown between", []string{"\xc3", "", "\xa9"}, []string{"", "", "é"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := golden(t).NewDecoder()
			for i, p := range c.push {
				require.Equal(t, c.want[i], d.push([]byte(p)), "part %d", i)
			}
			require.Equal(t, c.flush, d.Flush())
			require.Empty(t, d.Flush())
			require.Equal(t, "a", d.push([]byte("a")), "as new after Flush")
		})
	}
}

// lossy replaces each maximal prefix of a UTF-8 sequence by one U+FFFD, as Unicode
// recommends, found by trying all lengths.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out.WriteRune(r)
			b = b[n:]
			continue
		}
		bad := 1
		for n := 2; n <= min(3, len(b)); n++ {
			// A prefix is valid if some continuation completes it.
			for _, rest := range []string{"\x80", "\xbf", "\x80\x80", "\xbf\xbf", "\x90\x80", "\x9f\xbf"} {
				if utf8.Valid(append(append([]byte{}, b[:n]...), rest...)) {
					bad = n
				}
			}
		}
		out.WriteRune(utf8.RuneError)
		b = b[bad:]
	}
	return out.String()
}

// For arbitrary ids, the pushed texts are valid UTF-8, no partial character is ever
// shown, and together they equal Decode, which is the bytes decoded leniently.
func TestDecoderAnyIDs(t *testing.T) {
	tok := golden(t)
	r := rand.New(rand.NewPCG(11, 1))
	for range 5000 {
		var ids []int32
		var all []byte
		for range r.IntN(30) {
			id := tok.byteID[r.IntN(256)]
			switch r.IntN(4) {
			case 0:
				id = int32(r.IntN(tok.Size()+2) - 1)
			case 1: // mostly continuation bytes or first bytes of a long sequence
				id = tok.byteID[0x80+r.IntN(0x80)]
			}
			ids = append(ids, id)
			all = append(all, tok.Bytes(id)...)
		}
		d := tok.NewDecoder()
		var got strings.Builder
		for _, id := range ids {
			part := d.Push(id)
			require.True(t, utf8.ValidString(part), "%v", ids)
			got.WriteString(part)
			require.LessOrEqual(t, len(d.held), 3)
		}
		got.WriteString(d.Flush())
		require.Equal(t, tok.Decode(ids), got.String(), "%v", ids)
		require.Equal(t, lossy(all), got.String(), "%x", all)
	}
}

// Decode does not change the vocabulary's bytes, which Bytes hands out.
func TestDecodeLeavesBytesAlone(t *testing.T) {
	tok := golden(t)
	ids := tok.Encode("naïve 漢字 😀", false)
	var before [][]byte
	for _, id := range ids {
		before = append(before, bytes.Clone(tok.Bytes(id)))
	}
	tok.Decode(ids)
	for i, id := range ids {
		require.Equal(t, before[i], tok.Bytes(id))
	}
}
