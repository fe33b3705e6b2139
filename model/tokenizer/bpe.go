package tokenizer

import "math"

// pair is two neighbouring tokens, packed into one map key.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

// merge is the token that a pair becomes and its rank: the lowest rank is
// merged first.
type merge struct{ rank, id int32 }

const (
	noRank = math.MaxInt32
	// shortWord is the length in bytes up to which finding the best pair by a
	// linear scan is faster than a heap.
	shortWord = 48
)

// lookUp returns the merge of two tokens, with rank noRank if there is none.
func (t *Tokenizer) lookUp(left, right int32) merge {
	if m, ok := t.merges[pairOf(left, right)]; ok {
		return m
	}
	return merge{rank: noRank}
}

// merger holds the buffers of one Encode.
type merger struct {
	t    *Tokenizer
	poll poll
	next []merge // short words: next[i] merges symbol i with symbol i+1
	syms []symbolNode
	heap []heapItem
}

// appendWord appends the tokens of one word to ids: it starts with the word's bytes and
// repeatedly merges the pair with the lowest rank, the leftmost among equals.
func (m *merger) appendWord(ids []int32, word string) []int32 {
	begin := len(ids)
	if len(word) > shortWord {
		return m.appendLong(ids, word)
	}
	for i := range len(word) {
		ids = append(ids, m.t.byteID[word[i]])
	}
	syms := ids[begin:]
	m.next = m.next[:0]
	for i := range len(syms) - 1 {
		m.next = append(m.next, m.t.lookUp(syms[i], syms[i+1]))
	}
	for {
		best, rank := 0, int32(noRank)
		for i, c := range m.next {
			if c.rank < rank {
				best, rank = i, c.rank
			}
		}
		if rank == noRank {
			return ids[:begin+len(syms)]
		}
		syms[best] = m.next[best].id
		syms = append(syms[:best+1], syms[best+2:]...)
		m.next = append(m.next[:best], m.next[best+1:]...)
		if best > 0 {
			m.next[best-1] = m.t.lookUp(syms[best-1], syms[best])
		}
		if best < len(m.next) {
			m.next[best] = m.t.lookUp(syms[best], syms[best+1])
		}
	}
}

// symbolNode is one symbol of a long word in a doubly linked list by index;
// -1 ends the list. A symbol that was merged into its left neighbour has id -1.
type symbolNode struct{ id, prev, next int32 }

// heapItem is a candidate: the rank is in the upper half and the index of the left symbol
// in the lower, so that the smallest item has the lowest rank, the leftmost among equals.
type heapItem uint64

func itemOf(rank, index int32) heapItem { return heapItem(rank)<<32 | heapItem(index) }

// appendLong is appendWord with a heap of candidates, so that a megabyte without a space
// takes n log n steps and not n². It skips a candidate with an outdated rank: its symbols
// have changed since it was pushed.
func (m *merger) appendLong(ids []int32, word string) []int32 {
	m.syms, m.heap = emptied(m.syms, len(word)), emptied(m.heap, len(word))
	for i := range len(word) {
		m.syms = append(m.syms, symbolNode{m.t.byteID[word[i]], int32(i) - 1, int32(i) + 1})
	}
	m.syms[len(m.syms)-1].next = -1
	for i := range len(m.syms) - 1 {
		if m.poll.ended() {
			return ids
		}
		if c := m.t.lookUp(m.syms[i].id, m.syms[i+1].id); c.rank != noRank {
			m.heap = append(m.heap, itemOf(c.rank, int32(i)))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	for len(m.heap) > 0 && !m.poll.ended() {
		item := m.heap[0]
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
		m.sink(0)

		at := int32(uint32(item))
		left := &m.syms[at]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.syms[left.next]
		c := m.t.lookUp(left.id, right.id)
		if c.rank != int32(item>>32) {
			continue
		}
		left.id, left.next, right.id = c.id, right.next, -1
		if left.next >= 0 {
			m.syms[left.next].prev = at
			m.push(at, left.next)
		}
		if left.prev >= 0 {
			m.push(left.prev, at)
		}
	}
	for i := int32(0); i >= 0; i = m.syms[i].next {
		ids = append(ids, m.syms[i].id)
	}
	return ids
}

// emptied returns s without its elements and with room for n, allocated at once, because
// growing step by step would take several times the memory. So does slices.Grow under the
// race detector.
func emptied[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, 0, n)
	}
	return s[:0]
}

// push adds the pair of two neighbouring symbols to the heap if it has a merge.
func (m *merger) push(left, right int32) {
	c := m.t.lookUp(m.syms[left].id, m.syms[right].id)
	if c.rank == noRank {
		return
	}
	m.heap = append(m.heap, itemOf(c.rank, left))
	i := len(m.heap) - 1
	for i > 0 && m.heap[i] < m.heap[(i-1)/2] {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
		i = (i - 1) / 2
	}
}

// sink moves the item at i down to its place.
func (m *merger) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.heap[child+1] < m.heap[child] {
			child++
		}
		if m.heap[i] <= m.heap[child] {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
