package enginetest

import (
	"slices"

	"ringmaster/model"
)

// Forget drops all sequences; their ids may come again.
func (m *Model) Forget() {
	defer m.enter("Forget")()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seqs)
	clear(m.known)
	m.forwarded, m.next = nil, nil
}

// Restore makes a new sequence of these committed tokens.
func (m *Model) Restore(id model.SeqID, tokens []int32) {
	defer m.enter("Restore")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[id] > 0 || m.dropped[id] {
		m.violate("sequence %d is restored, but it is known", id)
	}
	m.seqs[id] = &sequence{tokens: slices.Clone(tokens), peak: len(tokens)}
	m.known[id] = len(tokens)
}
