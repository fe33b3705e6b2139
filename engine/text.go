package engine

import "unicode/utf8"

// textFilter turns the tokens of an answer into text that can be shown: whole
// UTF-8, and nothing that a stop string may still take back. Bytes that are no
// UTF-8 become U+FFFD, one for each, as in a Go conversion to runes.
//
// Which stop string ends an answer does not depend on where the tokens divide
// it: it is the one complete at the earliest byte, of those the longest.
type textFilter struct {
	stops []stopMatcher
	raw   []byte      // bytes held back
	base  int         // how many bytes came before raw
	held  []heldToken // tokens whose bytes are not all released
}

type heldToken struct {
	Token
	start, end int // byte offsets in the answer
}

// released is what a textFilter lets go.
type released struct {
	text   string
	tokens []Token // tokens whose last byte is in this or an earlier text
	stop   string  // the stop string found, with stopped
	// stopped: the answer ends before the stop string. Tokens that lie in
	// it wholly are not released.
	stopped bool
}

func newTextFilter(stops []string) *textFilter {
	f := &textFilter{}
	for _, s := range stops {
		f.stops = append(f.stops, newStopMatcher(s))
	}
	return f
}

// add takes the next token. watch is false while stop strings are held off;
// text that came unwatched is never part of a stop string.
func (f *textFilter) add(t Token, watch bool) released {
	start := f.base + len(f.raw)
	f.held = append(f.held, heldToken{t, start, start + len(t.Bytes)})
	for _, c := range t.Bytes {
		f.raw = append(f.raw, c)
		if !watch {
			continue
		}
		longest := ""
		for i := range f.stops {
			if f.stops[i].step(c) && len(f.stops[i].text) > len(longest) {
				longest = f.stops[i].text
			}
		}
		if longest != "" {
			cut := len(f.raw) - len(longest)
			f.held = cutTokens(f.held, f.base+cut)
			f.raw = f.raw[:cut]
			out := f.flush()
			out.stop, out.stopped = longest, true
			return out
		}
	}
	show := len(f.raw)
	for i := range f.stops {
		show = min(show, len(f.raw)-f.stops[i].matched)
	}
	return f.release(show - incompleteTail(f.raw[:show]))
}

// flush lets go of all that is held: the answer has ended.
func (f *textFilter) flush() released {
	out := f.release(len(f.raw))
	for _, t := range f.held {
		out.tokens = append(out.tokens, t.Token)
	}
	f.held = nil
	return out
}

// release lets n bytes go, and the tokens that end there.
func (f *textFilter) release(n int) (out released) {
	out.text = validText(f.raw[:n])
	f.raw = append(f.raw[:0], f.raw[n:]...)
	f.base += n
	for len(f.held) > 0 && f.held[0].end <= f.base {
		out.tokens = append(out.tokens, f.held[0].Token)
		f.held = f.held[1:]
	}
	return out
}

// cutTokens leaves the tokens that begin before offset end.
func cutTokens(held []heldToken, end int) []heldToken {
	for i, t := range held {
		if t.start >= end {
			return held[:i]
		}
	}
	return held
}

// incompleteTail is the length of an UTF-8 sequence that b ends within, 0 if
// there is none.
func incompleteTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// validText is b with each byte that is no UTF-8 replaced by U+FFFD.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// stopMatcher finds one stop string in a stream of bytes (Knuth, Morris and
// Pratt), so a byte costs the same however long the stop string is.
type stopMatcher struct {
	text    string
	border  []int // border[i]: length of the longest proper border of text[:i+1]
	matched int   // length of the longest suffix of the stream that begins text
}

func newStopMatcher(text string) stopMatcher {
	m := stopMatcher{text: text, border: make([]int, len(text))}
	for i, k := 1, 0; i < len(text); i++ {
		for k > 0 && text[i] != text[k] {
			k = m.border[k-1]
		}
		if text[i] == text[k] {
			k++
		}
		m.border[i] = k
	}
	return m
}

// step takes a byte and reports whether the stop string is now complete, after
// which the matcher must not be used any more.
func (m *stopMatcher) step(c byte) bool {
	for m.matched > 0 && c != m.text[m.matched] {
		m.matched = m.border[m.matched-1]
	}
	if c == m.text[m.matched] {
		m.matched++
	}
	return m.matched == len(m.text)
}
