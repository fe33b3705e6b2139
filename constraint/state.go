package constraint

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of what a grammar keeps, and of one state.
const (
	maxKept    = 4 << 20 // bytes; beyond them it forgets everything, which only costs time
	maxThreads = 1 << 14 // of one state
	maxSeen    = 4 * maxThreads
)

// The bytes of kept objects, including their entry in a map.
const (
	frameBytes  = 160
	stateBytes  = 256
	threadBytes = 32 // including its part of the key
	tableBytes  = 256*8 + 64
)

// frame is a place to return to: from a rule, or from a repetition with the number of
// times that its part still must come, and may. Frames are unique within a cache until it
// forgets them.
type frame struct {
	at       int32 // the node of the call or repetition
	min, max int32 // remaining; max -1: no limit
	depth    int32
	parent   *frame
	id       uint64 // from 1 on
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
	next    atomic.Pointer[table] // the transitions that are known
	mask    atomic.Pointer[[]uint64]
	clipped atomic.Pointer[state] // a state that is equivalent for all texts as long as a token
	age     uint64                // of the cache when the state was made
	final   bool
	dead    bool
	deep    bool // threads are missing because they would exceed maxDepth
}

// table has the state after each byte; dead: no thread continues.
type table [256]atomic.Pointer[state]

// cache keeps the frames and states of a grammar.
type cache struct {
	grammar *Grammar
	vocab   *Vocabulary
	dead    *state

	mu     sync.Mutex
	frames map[frameKey]*frame
	states map[string]*state
	ids    uint64
	age    uint64 // how often the cache has forgotten
	bytes  int    // of what it keeps
	build  builder
	key    []byte // of the state that is being made
}

type frameKey struct {
	at, min, max int32
	parent       *frame
}

func (c *cache) init(g *Grammar, v *Vocabulary) {
	c.grammar, c.vocab = g, v
	c.dead = &state{dead: true}
	c.frames, c.states = map[frameKey]*frame{}, map[string]*state{}
}

// keep counts bytes and forgets everything when they exceed maxKept; mu is held.
// Forgotten states lose their transitions, so that a state in use keeps no other alive.
func (c *cache) keep(bytes int) {
	if c.bytes += bytes; c.bytes <= maxKept {
		return
	}
	for _, s := range c.states {
		s.next.Store(nil)
		s.mask.Store(nil)
		s.clipped.Store(nil)
	}
	c.frames, c.states, c.bytes = map[frameKey]*frame{}, map[string]*state{}, bytes
	c.age++
}

// frame returns the one with these values, nil if it would be too deep.
func (c *cache) frame(at, min, max int32, parent *frame) *frame {
	key := frameKey{at, min, max, parent}
	if f := c.frames[key]; f != nil {
		return f
	}
	c.ids++
	f := &frame{at: at, min: min, max: max, parent: parent, depth: 1, id: c.ids}
	if parent != nil {
		f.depth = parent.depth + 1
	}
	if f.depth > maxDepth {
		return nil
	}
	c.bytes += frameBytes // forgetting waits until its state is complete
	c.frames[key] = f
	return f
}

// clip returns a frame with counts that are equivalent for all texts as long as a token.
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

// begin returns the state at the beginning of the grammar.
func (c *cache) begin(e *effort) (*state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.builder()
	b.follow(thread{c.grammar.start, nil})
	return b.state(e)
}

// builder collects the threads of a state.
type builder struct {
	cache *cache
	seen  *threadSet
	out   []thread
	work  int  // threads that were followed, including those seen before
	over  bool // there are too many
	deep  bool
}

// builder begins a state; mu is held until it is complete.
func (c *cache) builder() *builder {
	b := &c.build
	*b = builder{cache: c, seen: threadSets.Get().(*threadSet), out: b.out[:0]}
	return b
}

// state returns the state of the threads; mu is held. The error is ErrTooSlow if there
// are too many, because without some of them a state would allow less than the grammar.
func (b *builder) state(e *effort) (*state, error) {
	b.seen.empty()
	threadSets.Put(b.seen)
	b.seen = nil
	if err := e.spend(b.work); err != nil {
		return nil, err
	}
	if b.over {
		return nil, ErrTooSlow
	}
	b.cache.keep(0) // only now, when the frames are counted
	return b.cache.intern(b.out, b.deep), nil
}

// follow adds a thread, and follows it as far as it goes without a byte or token.
func (b *builder) follow(t thread) {
	c := b.cache
	n := &c.grammar.nodes[t.node]
	b.work++
	if b.over || n.dead || !b.seen.add(t) {
		return
	}
	if b.seen.n > maxSeen || b.work > 2*maxSeen {
		b.over = true
		return
	}
	switch n.kind {
	case nodeSplit:
		for _, to := range c.grammar.split(n) {
			b.follow(thread{to, t.stack})
		}
	case nodeCall:
		if c.grammar.nodes[n.next].kind == nodeReturn { // what the caller returns to
			b.follow(thread{n.arg, t.stack})
		} else if f := b.frame(t.node, 0, 0, t.stack); f != nil {
			b.follow(thread{n.arg, f})
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
		b.out = append(b.out, t)
		b.over = b.over || len(b.out) > maxThreads
	}
}

// again begins the part of a repetition with the remaining counts, unless none remain.
func (b *builder) again(at int32, n *node, least, most int32, stack *frame) {
	if most == 0 || b.cache.grammar.nodes[n.arg].dead {
		return
	}
	if f := b.frame(at, max(0, least-1), max(-1, most-1), stack); f != nil {
		b.follow(thread{n.arg, f})
	}
}

// frame returns that of the cache; it records one that would be too deep.
func (b *builder) frame(at, min, max int32, parent *frame) *frame {
	f := b.cache.frame(at, min, max, parent)
	b.deep = b.deep || f == nil
	return f
}

// intern returns the state with these threads; mu is held.
func (c *cache) intern(threads []thread, deep bool) *state {
	if len(threads) == 0 && !deep {
		return c.dead
	}
	slices.SortFunc(threads, func(a, b thread) int {
		if a.node != b.node {
			return int(a.node - b.node)
		}
		return cmp.Compare(idOf(a.stack), idOf(b.stack))
	})
	key := c.key[:0]
	for _, t := range threads {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.node))
		key = binary.LittleEndian.AppendUint64(key, idOf(t.stack))
	}
	if deep {
		key = append(key, 1)
	}
	c.key = key
	if s := c.states[string(key)]; s != nil {
		return s
	}
	c.keep(stateBytes + threadBytes*len(threads))
	s := &state{threads: slices.Clone(threads), age: c.age, dead: len(threads) == 0, deep: deep}
	for _, t := range threads {
		s.final = s.final || c.grammar.nodes[t.node].kind == nodeFinal
	}
	c.states[string(key)] = s
	return s
}

// idOf distinguishes frames; 0 is none.
func idOf(f *frame) uint64 {
	if f == nil {
		return 0
	}
	return f.id
}

// step returns the state after a byte.
func (c *cache) step(s *state, b byte, e *effort) (*state, error) {
	if next := s.next.Load(); next != nil {
		if to := next[b].Load(); to != nil {
			return to, nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	build := c.builder()
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeBytes && c.grammar.sets[n.arg].Has(b) {
			build.follow(thread{n.next, t.stack})
		}
	}
	build.work += 1 + len(s.threads)/8
	to, err := build.state(e)
	if err != nil {
		return nil, err
	}
	if s.age != c.age { // s is forgotten, and must not keep states alive
		return to, nil
	}
	next := s.next.Load()
	if next == nil {
		if c.keep(tableBytes); s.age != c.age {
			return to, nil
		}
		next = new(table)
		s.next.Store(next)
	}
	next[b].Store(to)
	return to, nil
}

// special returns the state after an added token.
func (c *cache) special(s *state, id int32, e *effort) (*state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	build := c.builder()
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeToken && n.arg == id {
			build.follow(thread{n.next, t.stack})
		}
	}
	return build.state(e)
}

// clipState returns a state that allows the same tokens, with counts no larger than
// matters.
func (c *cache) clipState(s *state) *state {
	if to := s.clipped.Load(); to != nil {
		return to
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	threads := make([]thread, 0, len(s.threads))
	seen := make(map[thread]bool, len(s.threads))
	for _, t := range s.threads {
		if clipped := (thread{t.node, c.clip(t.stack)}); !seen[clipped] {
			seen[clipped] = true
			threads = append(threads, clipped)
		}
	}
	to := c.intern(threads, s.deep)
	if s.age == c.age {
		s.clipped.Store(to)
	}
	return to
}

// maskOf returns the mask of a state; callers must not modify it.
func (c *cache) maskOf(s *state, e *effort) ([]uint64, error) {
	s = c.clipState(s)
	if m := s.mask.Load(); m != nil {
		return *m, nil
	}
	words := make([]uint64, (c.vocab.size+63)/64)
	some := false
	set := func(id int32) {
		words[id/64] |= 1 << (id % 64)
		some = true
	}
	deep, err := c.vocab.walk(c, s, set, e)
	if err != nil {
		return nil, err
	}
	for _, t := range s.threads {
		if n := &c.grammar.nodes[t.node]; n.kind == nodeToken && n.arg >= 0 && int(n.arg) < c.vocab.size {
			set(n.arg)
		}
	}
	if s.final {
		for _, id := range c.vocab.ends {
			set(id)
		}
	}
	switch {
	case some:
	case deep || s.deep:
		return nil, ErrTooDeep
	default:
		return nil, ErrNoToken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep(8 * len(words)); s.age == c.age {
		s.mask.Store(&words)
	}
	return words, nil
}
