package tokenizer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// rawText returns the bytes that ids stand for.
func rawText(t *Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(t.Raw(id))
	}
	return b.String()
}

func TestEncodeAddedTokens(t *testing.T) {
	tok := golden(t)
	id := func(text string) int32 {
		id, ok := tok.ID(text)
		require.True(t, ok, text)
		return id
	}
	user, seven, seventySeven := id("<｜User｜>"), id("<｜place▁holder▁no▁7｜>"), id("<｜place▁holder▁no▁77｜>")
	hi := id("hi")
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"<｜User｜>", []int32{user}},
		{"<｜User｜><｜User｜>hi<｜User｜>", []int32{user, user, hi, user}},
		{"<｜place▁holder▁no▁77｜><｜place▁holder▁no▁7｜>", []int32{seventySeven, seven}},
		{"<｜begin▁of▁sentence｜>hi", []int32{0, hi}},
	} {
		require.Equal(t, c.want, tok.Encode(c.text, true), c.text)
		plain := tok.Encode(c.text, false)
		require.Equal(t, c.text, rawText(tok, plain))
		for _, id := range plain {
			require.Equal(t, Normal, tok.Type(id), "%q without special", c.text)
		}
	}
	for _, text := range []string{"<｜User", "<｜User|>", "<｜place▁holder▁no▁", "｜", "<"} {
		require.Equal(t, tok.Encode(text, false), tok.Encode(text, true), text)
	}
	require.Empty(t, tok.Encode("", true))
}

func TestLongestAddedTokenWins(t *testing.T) {
	v := byteVocab()
	add := func(text string, kind Type) int32 {
		v.Tokens, v.Types = append(v.Tokens, text), append(v.Types, kind)
		return int32(len(v.Tokens) - 1)
	}
	short, long := add("<a>", UserDefined), add("<a><b>", Control)
	add("<c>", Unused)
	tok, err := New(v)
	require.NoError(t, err)
	require.Equal(t, []int32{short, long, short}, tok.Encode("<a><a><b><a>", true))
	require.Len(t, tok.Encode("<c>", true), 3, "an unused token is never matched")
}

// Every text comes back byte for byte, valid UTF-8 or not.
func TestRoundTrip(t *testing.T) {
	tok := golden(t)
	r := rand.New(rand.NewPCG(4, 2))
	for range 5000 {
		text := make([]byte, r.IntN(40))
		for i := range text {
			text[i] = byte(r.IntN(256))
		}
		require.Equal(t, string(text), rawText(tok, tok.Encode(string(text), true)))

		var valid []rune
		for range r.IntN(20) {
			valid = append(valid, alphabet[r.IntN(len(alphabet))])
		}
		require.Equal(t, string(valid), tok.Decode(tok.Encode(string(valid), false)))
	}
	for _, s := range samples(t) {
		require.Equal(t, s.Text, rawText(tok, s.IDs))
	}
}

// A repeated word is not merged again, but its tokens are the same.
func TestRepeatedWords(t *testing.T) {
	tok := golden(t)
	text := " unbelievable tokenization" // no numbers or Han, so a repetition splits the same way
	once := tok.Encode(text, false)
	var want []int32
	for range 50 {
		want = append(want, once...)
	}
	require.Equal(t, want, tok.Encode(strings.Repeat(text, 50), false))
}

// adversarial are texts of n bytes that make a naive tokenizer quadratic.
func adversarial(n int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, n/len(s)) }
	return map[string]string{
		"letter":          fill("a"),
		"letters":         fill("abcdefghijklmnopqrstuvwxyz"),
		"spaces":          fill(" "),
		"spaces and end":  fill(" ") + "x",
		"tabs":            fill("\t"),
		"line ends":       fill("\n"),
		"mixed space":     fill(" \n\t"),
		"signs":           fill("=-"),
		"less than":       fill("<"),
		"marker":          fill("<｜User｜>"),
		"half a marker":   fill("<｜place▁holder▁no▁"),
		"digits":          fill("1234567890"),
		"Han":             fill("漢字"),
		"kana marks":      fill("゛・"),
		"combining marks": fill("\u0301"),
		"controls":        fill("\x00"),
		"invalid bytes":   fill("\xff\xe4\xbd"),
		"emoji":           fill("👩‍👩‍👧"),
	}
}

// Endless words are encoded in one piece. A quadratic step would take minutes here; this
// test takes an instant.
func TestLongTexts(t *testing.T) {
	tok := golden(t)
	for name, text := range adversarial(1 << 18) {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, text, rawText(tok, tok.Encode(text, true)))
		})
	}
}

// Splitting takes time in proportion to the length with every pre-tokenizer, and
// loses nothing. A quadratic step would take minutes.
func TestSplitLongTexts(t *testing.T) {
	texts := adversarial(1 << 18)
	for name, part := range map[string]string{
		"capitals": "ABCD", "capitals and no case": "ªABC", "marks and capitals": "\u0301A", "camel": "aB", "contractions": "'s", "apostrophes": "'",
		"spaces between": "  \x00", "ideographic spaces": "\u3000", "wide signs": "！", "letters of all kinds": "aäа語",
	} {
		texts[name] = strings.Repeat(part, (1<<18)/len(part))
	}
	for _, pre := range Pretokenizers() {
		for name, text := range texts {
			require.Equal(t, text, strings.Join(pieces(pre, text), ""), "%s: %s", pre, name)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Text)
	}
	f.Add("<｜User｜>hi</think><｜place▁holder▁no▁7｜>")
	f.Fuzz(func(t *testing.T, text string) {
		tok := golden(t)
		for _, special := range []bool{false, true} {
			ids := tok.Encode(text, special)
			require.Equal(t, text, rawText(tok, ids))
			if !special && utf8.ValidString(text) {
				require.Equal(t, text, tok.Decode(ids))
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := golden(b)
	texts := adversarial(1 << 20)
	texts["prose"] = prose(b, 1<<20)
	for name, text := range texts {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(text, true)
			}
		})
	}
}

// prose returns n bytes of the golden texts in random order.
func prose(tb testing.TB, n int) string {
	r := rand.New(rand.NewPCG(1, 1))
	all := samples(tb)
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(all[r.IntN(len(all))].Text)
		b.WriteByte(" \n"[r.IntN(2)])
	}
	return b.String()[:n]
}

// endingContext ends after it has been checked a number of times.
type endingContext struct {
	context.Context
	looks int
}

func (c *endingContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestEncodeEndsWithItsContext checks that the work stops soon after the context has
// ended, whether a text is many words or one.
func TestEncodeEndsWithItsContext(t *testing.T) {
	tok := golden(t)
	for name, text := range map[string]string{
		"words": strings.Repeat("one two 3 ", 20_000), "one word": strings.Repeat("abcd", 20_000), "markers": strings.Repeat("<｜User｜>x y z w ", 20_000),
	} {
		for _, looks := range []int{0, 1, 5} {
			ctx := &endingContext{t.Context(), looks}
			ids, err := tok.EncodeContext(ctx, text, true)
			require.ErrorIs(t, err, context.Canceled, name)
			require.Empty(t, ids, name)
			require.Equal(t, -1, ctx.looks, "%s: it stops at the first look that finds the end", name)
		}
		ids, err := tok.EncodeContext(t.Context(), text, true)
		require.NoError(t, err)
		require.Equal(t, tok.Encode(text, true), ids, name)
	}
}

// TestEncodeMemory checks that a multiple of its length bounds the memory for a text of
// one long word, the most expensive case.
func TestEncodeMemory(t *testing.T) {
	tok := golden(t)
	for _, part := range []string{"a", "abcd", "thequickbrownfox", "é", "\xf0\x90\x8d\x88"} {
		text := strings.Repeat(part, (1<<20)/len(part))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tok.Encode(text, false)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(48*len(text)), part)
	}
}
