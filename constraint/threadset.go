package constraint

import "sync"

// threadSet is the threads that were seen while a state is made: a hash table that
// incrementing turn empties. Most of the work of masks is making states, and most of that
// happens here.
type threadSet struct {
	slots []slot // a power of two of them, at most half used
	turn  uint32
	n     int
}

type slot struct {
	thread thread
	turn   uint32 // the slot is used if this equals the set's
}

// threadSets are empty sets that may be large.
var threadSets = sync.Pool{New: func() any { return &threadSet{slots: make([]slot, 64), turn: 1} }}

// empty removes all threads.
func (s *threadSet) empty() {
	s.n = 0
	if s.turn++; s.turn == 0 {
		clear(s.slots)
		s.turn = 1
	}
}

// add adds a thread; false: the set had it already.
func (s *threadSet) add(t thread) bool {
	if 2*s.n >= len(s.slots) {
		old := *s
		*s = threadSet{slots: make([]slot, 2*len(old.slots)), turn: 1}
		for _, o := range old.slots {
			if o.turn == old.turn {
				s.add(o.thread)
			}
		}
	}
	hash := uint64(t.node)*0x9E3779B97F4A7C15 + idOf(t.stack)*0xD6E8FEB86659FD93
	hash ^= hash >> 32
	for i := hash; ; i++ {
		at := &s.slots[i&uint64(len(s.slots)-1)]
		if at.turn != s.turn {
			*at = slot{t, s.turn}
			s.n++
			return true
		}
		if at.thread == t {
			return false
		}
	}
}
