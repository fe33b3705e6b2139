package run

import (
	"container/list"
	"slices"
	"sync"

	"ringmaster/model/chat"
)

// Replays remembers the tokens of answers that called functions, by the ids of
// their calls, and of others that have an id of their own. When a client sends such
// an answer back, its prompt has the very tokens that were sampled, so the prefix
// cache finds them, and the model does not see a call in other words than its own.
// That holds for the reasoning, too, which many clients do not send back. The least
// recently used are forgotten. It is safe for concurrent use.
type Replays struct {
	limit int64 // bytes

	mu      sync.Mutex
	journal *journal // nil: nothing outlives the process
	bytes   int64
	byID    map[key]*list.Element // of order
	order   list.List             // of *replay, the last used first
}

// key names an answer: who may send it back, and the id of its first call or its own.
type key struct{ scope, id string }

// DefaultReplays is a good number of bytes for NewReplays.
const DefaultReplays = 16 << 20

// NewReplays remembers answers of a number of bytes at most.
func NewReplays(limit int64) *Replays {
	return &Replays{limit: limit, byID: map[key]*list.Element{}}
}

// Bytes are the bytes of the answers, and the most that they may be.
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

// size is what a replay takes, in bytes; the constants are a generous estimate of
// the places in list and map.
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
	if old, ok := r.byID[p.key()]; ok { // ids are unguessable, so this is a mistake of their maker
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

// Find returns the tokens of an assistant's message and of its reasoning, nil if they
// are not known in a scope, that of the request that they answered, or the message was
// changed since. Reasoning that the client left out is not changed; so an id that has
// become known must not be enough for another client to have it put into its prompt.
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
