package run

import (
	"container/list"
	"slices"
	"sync"

	"ringmaster/model/chat"
)

// Replays remembers the tokens of answers that called functions, by the ids of their
// calls, and of other answers that have an id of their own. When a client sends such an
// answer back, its prompt gets the very tokens that were sampled, so that the prefix
// cache finds them and the model sees its own wording of the call. The same holds for the
// reasoning, which many clients do not send back. It forgets the least recently used
// answers. It is safe for concurrent use.
type Replays struct {
	limit int64 // bytes

	mu      sync.Mutex
	journal *journal // nil: a restart loses all
	bytes   int64
	byID    map[key]*list.Element // of order
	order   list.List             // of *replay, the last used first
}

// key identifies an answer: the scope of the client that may send it back, and the id of
// its first call or its own.
type key struct{ scope, id string }

// DefaultReplays is a good limit for NewReplays.
const DefaultReplays = 16 << 20

// NewReplays remembers answers of at most limit bytes.
func NewReplays(limit int64) *Replays {
	return &Replays{limit: limit, byID: map[key]*list.Element{}}
}

// Bytes returns the bytes of the answers and their limit.
func (r *Replays) Bytes() (used, limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.limit
}

// replay is one answer.
type replay struct {
	scope, id          string
	reasoning, content string
	calls              []chat.Call
	thought            []int32 // the reasoning with the marker that ends it; nil: there was none
	tokens             []int32 // the rest
}

func (p *replay) key() key { return key{p.scope, p.id} }

// size returns the bytes of a replay; the constants are a generous estimate of the
// entries in list and map.
func (p *replay) size() int64 {
	n := 256 + len(p.scope) + len(p.id) + len(p.reasoning) + len(p.content) + 4*(len(p.thought)+len(p.tokens))
	for _, c := range p.calls {
		n += 64 + len(c.ID) + len(c.Name) + len(c.Arguments)
	}
	return int64(n)
}

func (r *Replays) remember(p *replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.size() > r.limit {
		return
	}
	if old, ok := r.byID[p.key()]; ok { // ids are unguessable, so only a mistake of their maker repeats one
		r.bytes -= r.order.Remove(old).(*replay).size()
	}
	r.byID[p.key()] = r.order.PushFront(p)
	if r.journal != nil {
		r.journal.add(p)
	}
	r.bytes += p.size()
	for r.bytes > r.limit {
		last := r.order.Back()
		old := r.order.Remove(last).(*replay)
		delete(r.byID, old.key())
		r.bytes -= old.size()
	}
}

// Find returns the tokens of an assistant's message and of its reasoning, nil if they are
// not known or the message was changed since. scope must be that of the request that the
// message answered: reasoning that the client left out counts as unchanged, so otherwise
// another client that learned the id could have the reasoning put into its own prompt.
func (r *Replays) Find(scope string, m *chat.Message) (tokens, thought []int32) {
	id := m.ID
	if len(m.Calls) > 0 {
		id = m.Calls[0].ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.byID[key{scope, id}]
	if !ok {
		return nil, nil
	}
	p := at.Value.(*replay)
	if p.content != m.Content || !slices.EqualFunc(p.calls, m.Calls, func(a, b chat.Call) bool {
		return a.ID == b.ID && a.Name == b.Name && sameJSON(a.Arguments, b.Arguments)
	}) {
		return nil, nil
	}
	r.order.MoveToFront(at)
	if m.Reasoning == "" || m.Reasoning == p.reasoning {
		thought = p.thought
	}
	return p.tokens, thought
}
