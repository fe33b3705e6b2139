package engine

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// naiveStop finds where an answer ends and by which stop string, by definition: the first
// end of any stop string in text[from:], and the longest of those that end there. cut is
// len(text) if there is none.
func naiveStop(text string, from int, stops []string) (cut int, stop string) {
	for end := from; end <= len(text); end++ {
		for _, s := range stops {
			if strings.HasSuffix(text[from:end], s) && len(s) > len(stop) {
				stop = s
			}
		}
		if stop != "" {
			return end - len(stop), stop
		}
	}
	return len(text), ""
}

// mayBegin returns the length of the longest suffix of text[from:] that a longer stop
// string begins with.
func mayBegin(text string, from int, stops []string) int {
	for n := len(text) - from; n > 0; n-- {
		for _, s := range stops {
			if len(s) > n && strings.HasPrefix(s, text[len(text)-n:]) {
				return n
			}
		}
	}
	return 0
}

// checkFilter feeds text to a filter in tokens with lengths that cycle through cuts; the
// first early tokens are not searched for stop strings. It checks every release against
// the definition.
func checkFilter(t *testing.T, text string, stops []string, cuts []byte, early int) {
	var tokens []string
	for rest := text; rest != ""; {
		n := 1
		if len(cuts) > 0 {
			n, cuts = int(cuts[0])%9, append(cuts[1:], cuts[0])
			if n == 0 && len(tokens) > 2*len(text) {
				n = 1
			}
		}
		n = min(n, len(rest))
		tokens, rest = append(tokens, rest[:n]), rest[n:]
	}
	from := len(strings.Join(tokens[:min(early, len(tokens))], ""))
	cut, stop := naiveStop(text, from, stops)
	want := string([]rune(text[:cut]))

	f := newTextFilter(stops)
	var got strings.Builder
	var freed []Token
	seen := 0 // bytes fed
	take := func(out released) {
		require.True(t, utf8.ValidString(out.text), "released %q", out.text)
		got.WriteString(out.text)
		freed = append(freed, out.tokens...)
	}
	for i, tok := range tokens {
		out := f.add(Token{ID: int32(i), Bytes: []byte(tok)}, i >= early)
		take(out)
		seen += len(tok)
		require.Equal(t, stop != "" && cut+len(stop) <= seen, out.stopped, "token %d, stops %q, text %q", i, stops, text)
		if out.stopped {
			require.Equal(t, stop, out.stop)
			require.Equal(t, want, got.String())
			break
		}
		// No more is held back than a stop string or an incomplete character
		// requires.
		held := 0
		if i >= early {
			held = mayBegin(text[:seen], from, stops)
		}
		show := text[:seen-held]
		for n := min(3, len(show)); n > 0; n-- {
			if tail := show[len(show)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) {
				show = show[:len(show)-n]
				break
			}
		}
		require.Equal(t, string([]rune(show)), got.String(), "shown after token %d", i)
	}
	if stop == "" {
		take(f.flush())
	}
	require.Equal(t, want, got.String())
	// The tokens are the first ones, in order, and no more than the text needs.
	length := 0
	for i, tok := range freed {
		require.Equal(t, int32(i), tok.ID)
		if length > cut || length == cut && len(tok.Bytes) > 0 {
			t.Fatalf("token %d begins at %d, the text ends at %d", i, length, cut)
		}
		length += len(tok.Bytes)
	}
	if length < cut || stop == "" && len(freed) != len(tokens) {
		t.Fatalf("%d tokens of %d bytes released for a text of %d", len(freed), length, cut)
	}
}

func FuzzStop(f *testing.F) {
	f.Add("the end is near", "end\x00near", []byte{1, 2, 3}, 0)
	f.Add("aaaaab", "aab\x00aaab", []byte{1}, 0)
	f.Add("abcabcabd", "abcabd", []byte{4}, 0)
	f.Add("aaabac", "aaac", []byte{2}, 0)
	f.Add("xabcd", "abc\x00c", []byte{1}, 0)
	f.Add("xabc", "abc\x00b", []byte{8}, 0)
	f.Add("héllo wörld€", "ö\x00€", []byte{1}, 2)
	f.Add("\xe2\x82a\xff\xf0\x9f\x98\x80", "a\xc3\xbf\x00😀", []byte{1, 0, 2}, 1)
	f.Add("stop stop stop", "stop", []byte{3, 0, 5}, 2)
	f.Fuzz(func(t *testing.T, text, joined string, cuts []byte, early int) {
		if len(text) > 300 || len(joined) > 100 || early < 0 {
			return
		}
		var stops []string
		for _, s := range strings.Split(joined, "\x00") {
			if s != "" && utf8.ValidString(s) {
				stops = append(stops, s)
			}
		}
		checkFilter(t, text, stops, cuts, early)
	})
}

func TestTextIsNotHeldLongerThanNeeded(t *testing.T) {
	f := newTextFilter([]string{"\nUser:"})
	var shown []string
	for _, tok := range []string{"Hi", "\n", "Us", "ual", "ly", "\nUser", ":", "x"} {
		out := f.add(Token{Bytes: []byte(tok)}, true)
		shown = append(shown, out.text)
		if out.stopped {
			break
		}
	}
	got, want := strings.Join(shown, "|"), "Hi|||\nUsual|ly||"
	require.Equal(t, want, got)
}
