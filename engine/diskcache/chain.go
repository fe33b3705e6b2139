package diskcache

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Files that share. A snapshot may continue another one, its parent: then it has only what
// follows the parent's tokens, and both are read to restore it. So conversations that
// begin alike, with the system prompt of an agent, share the file of this beginning.

const (
	// mostFiles is the most files of one sequence, so that few are opened for a prompt and
	// few end states of rings are stored.
	mostFiles = 4
	// leastShared is the fewest tokens of a file for others to continue.
	leastShared = MinTokens
)

// cut returns the parent of a sequence's next file, nil for none, and where the file ends:
// at the first of Cuts behind the parent, or with the sequence. begins are the entries
// that the sequence begins with, the longest last. mu is held.
func (s *Store) cut(q Sequence, begins []*Entry) (parent *Entry, to int) {
	for _, e := range begins {
		if (e.Shared || slices.Contains(q.Cuts, e.form.Length)) && e.files() < mostFiles && len(e.Checkpoints())+len(q.Checkpoints) <= MaxCheckpoints {
			parent = e
		}
	}
	from := 0
	if parent != nil {
		from = parent.form.Length
	}
	if parent == nil || parent.files() < mostFiles-1 {
		for _, n := range q.Cuts {
			// Without a checkpoint, a sequence that has been longer cannot be continued.
			if n-from >= leastShared && n < len(q.Tokens) && (q.Peak-n <= s.rewind || slices.Contains(q.Checkpoints, n)) {
				return parent, n
			}
		}
	}
	return parent, len(q.Tokens)
}

// files returns how many files an entry is read from.
func (e *Entry) files() int { return len(e.chain()) }

// chain returns the files that an entry is read from, in their order.
func (e *Entry) chain() (out []*Entry) {
	for ; e != nil; e = e.parent {
		out = append(out, e)
	}
	slices.Reverse(out)
	return out
}

// bytes returns the bytes of the files that an entry is read from.
func (e *Entry) bytes() (n int64) {
	for ; e != nil; e = e.parent {
		n += e.size
	}
	return n
}

// Checkpoints returns the lengths at which the sequence has checkpoints, ascending.
func (e *Entry) Checkpoints() (at []int) {
	for _, e := range e.chain() {
		at = append(at, e.form.Checkpoints...)
	}
	return at
}

// adopt connects an entry of a file to its parent; false if that is missing or another one.
// No parent is evicted before the entries that continue it.
func (s *Store) adopt(e *Entry) bool {
	if e.From == 0 {
		return true
	}
	p := s.entries[e.Parent]
	if p == nil || p.ID != e.ParentID || p.Model != e.Model || p.Scope != e.Scope || p.form.Length != e.From || p.files() >= mostFiles {
		return false
	}
	e.parent = p
	p.children++
	return true
}

// victims returns the least valuable entries that together have so many bytes, or all that
// exist; each comes after those that continue it. keep and what it continues are not
// among them. mu is held.
func (s *Store) victims(missing int64, keep *Entry) (out []*Entry) {
	now, gone := s.o.Clock(), map[*Entry]int{} // children that are among the victims
	kept := map[*Entry]bool{}
	for _, e := range keep.chain() {
		kept[e] = true
	}
	byValue := slices.SortedFunc(maps.Values(s.entries), func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.value(now), b.value(now)), cmp.Compare(a.name, b.name))
	})
	for missing > 0 {
		i := slices.IndexFunc(byValue, func(e *Entry) bool { return !kept[e] && e.children == gone[e] })
		if i < 0 {
			break
		}
		e := byValue[i]
		byValue = slices.Delete(byValue, i, i+1)
		if missing -= e.size; e.parent != nil {
			gone[e.parent]++
		}
		out = append(out, e)
	}
	return out
}

// forgetLocked removes an entry, and those that continue it, from the index; their files
// must then be removed. mu is held.
func (s *Store) forgetLocked(e *Entry) {
	if s.entries[e.name] != e {
		return
	}
	if e.children > 0 {
		for _, c := range slices.Collect(maps.Values(s.entries)) {
			if c.parent == e {
				s.forgetLocked(c)
			}
		}
	}
	delete(s.entries, e.name)
	s.bytes -= e.size
	s.version++
	if e.parent != nil {
		e.parent.children--
	}
	if p := s.entries[e.Replaces]; p != nil {
		p.superseded = false
	}
	s.removed = append(s.removed, e.name) // after those that continue it
}

// usedLocked records the use of an entry and of what it continues. mu is held.
func (s *Store) usedLocked(e *Entry, now time.Time) {
	for ; e != nil; e = e.parent {
		if e.used = now; s.entries[e.name] == e {
			s.touched[e.name] = now
		}
	}
	s.workLocked()
}
