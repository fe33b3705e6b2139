package constraint

import (
	"errors"
	"fmt"
)

// Matcher follows one answer through a grammar. It implements engine.Constraint,
// and is not safe for concurrent use.
type Matcher struct {
	grammar *Grammar
	state   *state
	tokens  Tokens
}

// ErrNotAllowed is wrapped by Accept's error.
var ErrNotAllowed = errors.New("constraint: the token is not allowed here")

// Matcher begins an answer. tokens are those of the grammar's vocabulary.
func (g *Grammar) Matcher(tokens Tokens) *Matcher {
	return &Matcher{grammar: g, state: g.cache.begin(), tokens: tokens}
}

// Mask sets bit id%64 of word id/64 for every id that may come next: of tokens whose
// bytes go on with the grammar, of those that it names, and of the ends where it may
// end. Its error is ErrTooSlow.
func (m *Matcher) Mask(allowed []uint64) error {
	words, err := m.grammar.cache.maskOf(m.state)
	copy(allowed, words)
	return err
}

// Accept takes the next token. Its error wraps ErrNotAllowed.
func (m *Matcher) Accept(id int32) error {
	c := &m.grammar.cache
	to := m.state
	if id >= 0 && int(id) < c.vocab.size && !m.tokens.Added(id) && len(m.tokens.Bytes(id)) > 0 {
		for _, b := range m.tokens.Bytes(id) {
			to = c.step(to, b)
		}
	} else {
		to = c.special(to, id)
	}
	if to.dead {
		return fmt.Errorf("%w: %d", ErrNotAllowed, id)
	}
	m.state = to
	return nil
}
