package engine

import "unicode/utf8"

// textFilter turns the tokens of an answer into text that can be sent: complete UTF-8
// sequences, and nothing that may turn out to be part of a stop string. Each invalid byte
// becomes U+FFFD, as in a Go conversion to runes.
//
// Which stop string ends an answer does not depend on how the text is divided into
// tokens: it is the one that is complete at the earliest byte, the longest among those.
type textFilter struct {
	stops []stopMatcher
	raw   []byte      // bytes held back
	base  int         // offset of raw[0] in the answer
	held  []heldToken // tokens whose bytes are not all released
}

type heldToken struct {
	Token
	start, end int // byte offsets in the answer
}

// released is text and tokens that can be sent.
type released struct {
	text   string
	tokens []Token // tokens whose last byte is in this or an earlier text
	stop   string  // the stop string found, with stopped
	// stopped: the answer ends before the stop string. Tokens that lie
	// entirely in it are not released.
	stopped bool
}

func newTextFilter(stops []string) *textFilter {
	f := &textFilter{}
	for _, s := range stops {
		f.stops = append(f.stops, newStopMatcher(s))
	}
	return f
}

// add appends the next token. watch is false while stop strings do not count
// (Request.MinTokens, Request.StopsIn); text added then is never part of one.
func (f *textFilter) add(t Token, watch bool) released {
	start := f.base + len(f.raw)
	f.held = append(f.held, heldToken{t, start, start + len(t.Bytes)})
	for _, c := range t.Bytes {
		f.raw = append(f.raw, c)
		if !watch {
			for i := range f.stops {
				f.stops[i].matched = 0
			}
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

// flush releases everything that is held back, because the answer has ended.
func (f *textFilter) flush() released {
	out := f.release(len(f.raw))
	for _, t := range f.held {
		out.tokens = append(out.tokens, t.Token)
	}
	f.held = nil
	return out
}

// release releases n bytes and the tokens that end in them.
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

// cutTokens keeps the tokens that start before offset end.
func cutTokens(held []heldToken, end int) []heldToken {
	for i, t := range held {
		if t.start >= end {
			return held[:i]
		}
	}
	return held
}

// incompleteTail returns the length in bytes of an incomplete UTF-8 sequence at the end
// of b, 0 if there is none.
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

// validText returns b with each invalid byte replaced by U+FFFD.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// stopMatcher finds one stop string in a stream of bytes with the algorithm of
// Knuth, Morris and Pratt: amortised constant time for each byte.
type stopMatcher struct {
	text    string
	border  []int // border[i]: length of the longest proper border of text[:i+1]
	matched int   // length of the longest suffix of the stream that is a prefix of text
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

// step advances by a byte and reports whether the stop string is complete; after that the
// matcher must not be used again.
func (m *stopMatcher) step(c byte) bool {
	for m.matched > 0 && c != m.text[m.matched] {
		m.matched = m.border[m.matched-1]
	}
	if c == m.text[m.matched] {
		m.matched++
	}
	return m.matched == len(m.text)
}
