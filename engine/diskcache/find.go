package diskcache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// Find returns the snapshot of a scope with which the most tokens of a prompt need not
// run, of those with the fewest bytes to read. These tokens are the common prefix, if the
// sequence can be rewound to it, and otherwise end at its last checkpoint within the
// common prefix, or where a replay of it begins. reuse is their number, or somewhat fewer. At
// least one token of the prompt is always left to run.
func (s *Store) Find(scope string, prompt []int32) (best *Entry, reuse int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hanging > 0 {
		return nil, 0
	}
	hashed := hashScope(scope)
	var candidates []*Entry
	var lengths []int
	for _, e := range s.entries {
		if e.Model == s.model && e.Scope == hashed && e.least() < len(prompt) {
			candidates, lengths = append(candidates, e), append(lengths, e.least())
		}
	}
	// Most differ from the prompt at their first length already.
	sums := s.prefixes(hashed, prompt, lengths)
	candidates = slices.DeleteFunc(candidates, func(e *Entry) bool {
		n := e.least()
		i := slices.Index(e.lengths(), n)
		return i >= 0 && sums[n][:markLength] != e.Marks[i]
	})
	lengths = nil
	for _, e := range candidates {
		lengths = append(lengths, min(e.form.Length, len(prompt)))
		for _, n := range e.lengths() {
			if n < len(prompt) {
				lengths = append(lengths, n)
			}
		}
	}
	sums = s.prefixes(hashed, prompt, lengths)
	for _, e := range candidates {
		n := 0
		if most := min(e.form.Length, len(prompt)-1); e.form.Length <= len(prompt) && most >= e.Base && sums[e.form.Length] == e.Whole {
			n = most
		}
		for i, at := range e.lengths() {
			if at < len(prompt) && e.reuse(at) > n && sums[at][:markLength] == e.Marks[i] {
				n = e.reuse(at)
			}
		}
		if n > reuse || n == reuse && n > 0 && cmp.Or(cmp.Compare(e.bytes(), best.bytes()), best.used.Compare(e.used)) < 0 {
			best, reuse = e, n
		}
	}
	return best, reuse
}

// prefixes hashes the prefixes of ids that have the given lengths.
func (s *Store) prefixes(scope string, ids []int32, lengths []int) map[int]string {
	slices.Sort(lengths)
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00", s.model, scope)
	out, at := make(map[int]string, len(lengths)), 0
	var b [512]byte
	for _, n := range slices.Compact(lengths) {
		for at < n {
			buf := b[:0]
			for ; at < n && len(buf) < len(b); at++ {
				buf = binary.LittleEndian.AppendUint32(buf, uint32(ids[at]))
			}
			h.Write(buf)
		}
		out[n] = hex.EncodeToString(h.Sum(nil))
	}
	return out
}

func hashScope(scope string) string {
	sum := sha256.Sum256([]byte("ringmaster cache scope\x00" + scope))
	return hex.EncodeToString(sum[:])
}
