package constraint

import (
	"context"
	"math/bits"
)

// forcedWork bounds the work of one call of Forced, about 0.2 ms.
const forcedWork = 1 << 11

// Forced returns the bytes that the answer must continue with, as far as the grammar leaves
// no choice, at most most. It is a guess for speculative decoding, so it gives up where
// finding out is work, and takes none of the request's work: an answer must not end sooner
// because of guesses.
func (m *Matcher) Forced(most int) (text []byte) {
	c := &m.grammar.cache
	e := &effort{ctx: context.Background(), work: NewWork(), left: forcedWork, look: forcedWork}
	for s := m.state; s != nil && len(text) < most; {
		b, ok := m.grammar.only(s)
		if !ok {
			break
		}
		to, err := c.step(s, b, e)
		if err != nil {
			break
		}
		text, s = append(text, b), to
	}
	return text
}

// only returns the one byte that may follow in a state; false if there is none, or more
// than one, or a token may follow, or the end.
func (g *Grammar) only(s *state) (b byte, ok bool) {
	if s.final || s.deep {
		return 0, false
	}
	for _, t := range s.threads {
		n := &g.nodes[t.node]
		if n.kind != nodeBytes {
			return 0, false
		}
		one, single := g.sets[n.arg].single()
		if !single || ok && one != b {
			return 0, false
		}
		b, ok = one, true
	}
	return b, ok
}

// single returns the only byte of a set.
func (s *Set) single() (b byte, ok bool) {
	for i, word := range s {
		if word == 0 {
			continue
		}
		if ok || word&(word-1) != 0 {
			return 0, false
		}
		b, ok = byte(64*i+bits.TrailingZeros64(word)), true
	}
	return b, ok
}
