package constraint

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of what a grammar keeps: beyond them it forgets everything and begins
// anew, which costs time and nothing else.
const (
	maxStates  = 1024
	maxMasks   = 128
	maxThreads = 1024 // of one state; a grammar that needs more is hostile
	// maxWork bounds the threads that are followed for one mask: some tenths of a
	// second, for which the model may have to wait.
	maxWork = 1 << 21
)

// ErrTooSlow is returned by Mask for a grammar with too many ways to go on.
var ErrTooSlow = errors.New("constraint: the grammar is too ambiguous: it takes too long to find out what may come next")

// frame is a place to return to: from a rule, or from a repetition with the number
// of times that its part must come yet, and may. Frames are unique in a cache.
type frame struct {
	at       int32 // the node of the call or repetition
	min, max int32 // left; max -1: without end
	parent   *frame
	depth    int32
	id       uint32
	clipped  *frame
}

// thread is one way in which a text may be matched.
type thread struct {
	node  int32 // bytes, token or final
	stack *frame
}

// state is a set of threads.
type state struct {
	threads []thread
	next    [256]atomic.Pointer[state] // as far as known; dead: no thread goes on
	mask    atomic.Pointer[[]uint64]
	clipped atomic.Pointer[state] // the same for all texts as long as a token
	final   bool
	dead    bool
}

// cache keeps the frames and states of a grammar.
type cache struct {
	grammar *Grammar
	vocab   *Vocabulary
	dead    *state

	mu     sync.Mutex
	frames map[frameKey]*frame
	states map[string]*state
	ids    uint32
	masks  int
	work   int // threads followed
}

type frameKey struct {
	at, min, max int32
	parent       *frame
}

func (c *cache) init(g *Grammar, v *Vocabulary) {
	c.grammar, c.vocab = g, v
	c.dead = &state{dead: true}
	c.forget()
}

// forget begins anew; mu is held, or nobody else has the cache. States in use keep
// what they know.
func (c *cache) forget() {
	c.frames, c.states, c.masks = map[frameKey]*frame{}, map[string]*state{}, 0
}

// frame is the one with these values, nil if it would be too deep.
func (c *cache) frame(at, min, max int32, parent *frame) *frame {
	key := frameKey{at, min, max, parent}
	if f := c.frames[key]; f != nil {
		return f
	}
	f := &frame{at: at, min: min, max: max, parent: parent, depth: 1, id: c.ids}
	if parent != nil {
		f.depth = parent.depth + 1
	}
	if f.depth > maxDepth {
		return nil
	}
	c.ids++
	c.frames[key] = f
	return f
}

// clip is a frame whose counts are the same for all texts of the length of a token.
func (c *cache) clip(f *frame) *frame {
	if f == nil || f.clipped != nil {
		if f == nil {
			return nil
		}
		return f.clipped
	}
	most := int32(c.vocab.longest + 1)
	f.clipped = c.frame(f.at, min(f.min, most), min(f.max, most), c.clip(f.parent))
	return f.clipped
}

// begin is the state at the beginning of the grammar.
func (c *cache) begin() *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := builder{cache: c, seen: map[thread]bool{}}
	b.follow(thread{c.grammar.start, nil})
	return c.intern(b.out)
}

// builder collects the threads of a state.
type builder struct {
	cache *cache
	seen  map[thread]bool
	out   []thread
}

// follow adds a thread, as far as it goes without a byte or token.
func (b *builder) follow(t thread) {
	if b.seen[t] || len(b.seen) > 8*maxThreads {
		return
	}
	b.seen[t] = true
	c := b.cache
	c.work++
	n := &c.grammar.nodes[t.node]
	switch n.kind {
	case nodeSplit:
		for _, to := range n.split {
			b.follow(thread{to, t.stack})
		}
	case nodeCall:
		if c.grammar.nodes[n.next].kind == nodeReturn { // what the caller returns to
			b.follow(thread{n.call, t.stack})
		} else if f := c.frame(t.node, 0, 0, t.stack); f != nil {
			b.follow(thread{n.call, f})
		}
	case nodeRepeat:
		if n.min == 0 {
			b.follow(thread{n.next, t.stack})
		}
		b.again(t.node, n, n.min, n.max, t.stack)
	case nodeReturn:
		f := t.stack
		from := &c.grammar.nodes[f.at]
		if from.kind == nodeCall || f.min == 0 {
			b.follow(thread{from.next, f.parent})
		}
		if from.kind == nodeRepeat {
			b.again(f.at, from, f.min, f.max, f.parent)
		}
	default:
		if len(b.out) < maxThreads {
			b.out = append(b.out, t)
		}
	}
}

// again begins the part of a repetition with the counts that are left, unless none
// is.
func (b *builder) again(at int32, n *node, least, most int32, stack *frame) {
	if most == 0 {
		return
	}
	if f := b.cache.frame(at, max(0, least-1), max(-1, most-1), stack); f != nil {
		b.follow(thread{n.call, f})
	}
}

// intern is the state with these threads; mu is held.
func (c *cache) intern(threads []thread) *state {
	if len(threads) == 0 {
		return c.dead
	}
	slices.SortFunc(threads, func(a, b thread) int {
		if a.node != b.node {
			return int(a.node - b.node)
		}
		return int(int64(idOf(a.stack)) - int64(idOf(b.stack)))
	})
	key := make([]byte, 0, 8*len(threads))
	for _, t := range threads {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.node))
		key = binary.LittleEndian.AppendUint32(key, idOf(t.stack))
	}
	if s := c.states[string(key)]; s != nil {
		return s
	}
	if len(c.states) >= maxStates {
		c.forget()
	}
	s := &state{threads: threads}
	for _, t := range threads {
		s.final = s.final || c.grammar.nodes[t.node].kind == nodeFinal
	}
	c.states[string(key)] = s
	return s
}

// idOf tells frames apart; 0 is none.
func idOf(f *frame) uint32 {
	if f == nil {
		return 0
	}
	return f.id + 1
}

// step is the state after a byte.
func (c *cache) step(s *state, b byte) *state {
	if to := s.next[b].Load(); to != nil {
		return to
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	build := builder{cache: c, seen: map[thread]bool{}}
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeBytes && n.set.Has(b) {
			build.follow(thread{n.next, t.stack})
		}
	}
	to := c.intern(build.out)
	s.next[b].Store(to)
	return to
}

// special is the state after a token of its own.
func (c *cache) special(s *state, id int32) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	build := builder{cache: c, seen: map[thread]bool{}}
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeToken && n.token == id {
			build.follow(thread{n.next, t.stack})
		}
	}
	return c.intern(build.out)
}

// clip is a state that allows the same tokens, with counts no larger than matters.
func (c *cache) clipState(s *state) *state {
	if to := s.clipped.Load(); to != nil {
		return to
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	threads := make([]thread, 0, len(s.threads))
	for _, t := range s.threads {
		clipped := thread{t.node, c.clip(t.stack)}
		if !slices.Contains(threads, clipped) {
			threads = append(threads, clipped)
		}
	}
	to := c.intern(threads)
	s.clipped.Store(to)
	return to
}

// maskOf is the mask of a state, which nobody changes.
func (c *cache) maskOf(s *state) ([]uint64, error) {
	s = c.clipState(s)
	if m := s.mask.Load(); m != nil {
		return *m, nil
	}
	words := make([]uint64, (c.vocab.size+63)/64)
	set := func(id int32) { words[id/64] |= 1 << (id % 64) }
	if !c.vocab.walk(c, s, set) {
		return nil, ErrTooSlow
	}
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeToken {
			set(n.token)
		}
	}
	if s.final {
		for _, id := range c.vocab.ends {
			set(id)
		}
	}
	c.mu.Lock()
	if c.masks++; c.masks > maxMasks {
		c.forget()
	}
	c.mu.Unlock()
	s.mask.Store(&words)
	return words, nil
}

// worked is how many threads have been followed.
func (c *cache) worked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work
}
