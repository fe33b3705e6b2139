package model

import (
	"fmt"
	"slices"
)

// Truncated returns the step with only the first kept[i] tokens of each entry i, for
// Commit. It leaves out tokens that were guesses and turned out wrong. Only an entry with
// WantAll may lose tokens, and no entry may lose all. s stays as it is.
func (s Step) Truncated(kept []int) (Step, error) {
	if len(kept) != len(s.Entries) {
		return Step{}, fmt.Errorf("a step of %d entries, but %d numbers of tokens to keep", len(s.Entries), len(kept))
	}
	s.Entries = slices.Clone(s.Entries)
	for i, n := range kept {
		e := &s.Entries[i]
		switch {
		case n < 1 || n > len(e.Tokens):
			return Step{}, fmt.Errorf("sequence %d: %d of %d tokens cannot be kept", e.Seq, n, len(e.Tokens))
		case n < len(e.Tokens) && e.Want != WantAll:
			return Step{}, fmt.Errorf("sequence %d: only %d of %d tokens kept of an entry that does not want all rows", e.Seq, n, len(e.Tokens))
		}
		e.Tokens = e.Tokens[:n:n]
	}
	return s, nil
}

// Kept returns how many tokens of each entry of s are left in t, its truncated form; nil
// if t has all of them.
func (s Step) Kept(t Step) []int {
	var kept []int
	for i, e := range s.Entries {
		if kept == nil && len(t.Entries[i].Tokens) == len(e.Tokens) {
			continue
		}
		if kept == nil {
			for _, whole := range s.Entries[:i] {
				kept = append(kept, len(whole.Tokens))
			}
		}
		kept = append(kept, len(t.Entries[i].Tokens))
	}
	return kept
}
