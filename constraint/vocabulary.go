package constraint

import (
	"bytes"
	"slices"
)

// Vocabulary is a vocabulary as a prefix tree: its nodes in depth-first order, each with
// the byte that leads to it. It is safe for concurrent use.
type Vocabulary struct {
	size    int
	longest int // longest token in bytes
	ends    []int32

	bytes []byte  // [nodes]
	depth []int32 // [nodes] from 1
	after []int32 // [nodes] the next node that is not below this one
	first []int32 // [nodes+1] start in ids of the tokens that end here
	ids   []int32

	heavy chan struct{} // holds a value while a long mask is computed
}

// Tokens is what a Vocabulary is made of.
type Tokens interface {
	// Size returns the number of ids.
	Size() int
	// Bytes returns the text of a token, which may be a part of a character.
	Bytes(id int32) []byte
	// Added reports whether a token was added to the vocabulary. Such a token matches
	// only itself, whatever its text.
	Added(id int32) bool
	// IsEnd reports whether a token ends an answer.
	IsEnd(id int32) bool
}

// NewVocabulary makes the tree of a vocabulary. A token without text is allowed only if a
// grammar names it, or as the end.
func NewVocabulary(t Tokens) *Vocabulary {
	v := &Vocabulary{size: t.Size(), heavy: make(chan struct{}, 1)}
	type entry struct {
		text []byte
		id   int32
	}
	var list []entry
	for id := range int32(v.size) {
		if t.IsEnd(id) {
			v.ends = append(v.ends, id)
			continue
		}
		if text := t.Bytes(id); len(text) > 0 && !t.Added(id) {
			list = append(list, entry{text, id})
			v.longest = max(v.longest, len(text))
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if c := bytes.Compare(a.text, b.text); c != 0 {
			return c
		}
		return int(a.id - b.id)
	})
	var path []int32 // the nodes above
	var last []byte
	for _, e := range list {
		common := 0
		for common < min(len(last), len(e.text)) && last[common] == e.text[common] {
			common++
		}
		for _, n := range path[common:] {
			v.after[n] = int32(len(v.bytes))
		}
		path = path[:common]
		for i := common; i < len(e.text); i++ {
			path = append(path, int32(len(v.bytes)))
			v.bytes = append(v.bytes, e.text[i])
			v.depth = append(v.depth, int32(i+1))
			v.after = append(v.after, 0)
			v.first = append(v.first, int32(len(v.ids)))
		}
		v.ids = append(v.ids, e.id)
		last = e.text
	}
	for _, n := range path {
		v.after[n] = int32(len(v.bytes))
	}
	v.first = append(v.first, int32(len(v.ids)))
	return v
}

// walk calls set for every token that leads from a state to another with its bytes; deep
// means that some would have led deeper than maxDepth. Only one long walk runs at a time,
// because long walks take processors from the model and from short walks.
func (v *Vocabulary) walk(c *cache, s *state, set func(id int32), e *effort) (deep bool, err error) {
	states := make([]*state, v.longest+1) // by depth
	states[0] = s
	visited, heavy := 0, false
	for i := 0; i < len(v.bytes); {
		if visited++; visited%walkedPerUnit == 0 {
			if err := e.spend(1); err != nil {
				return false, err
			}
		}
		if !heavy && e.left < maxWork-lightWork {
			select {
			case v.heavy <- struct{}{}:
			case <-e.ctx.Done():
				return false, e.ctx.Err()
			}
			heavy = true
			defer func() { <-v.heavy }()
		}
		d := v.depth[i]
		to, err := c.step(states[d-1], v.bytes[i], e)
		if err != nil {
			return false, err
		}
		deep = deep || to.deep
		if to.dead {
			i = int(v.after[i])
			continue
		}
		states[d] = to
		for _, id := range v.ids[v.first[i]:v.first[i+1]] {
			set(id)
		}
		i++
	}
	return deep, nil
}

// walkedPerUnit is how many nodes of the tree a walk visits in the time in which it could
// follow one thread.
const walkedPerUnit = 16
