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

	mu    sync.Mutex
	bytes int64
	byID  map[string]*list.Element // of order, by the id of the first call or of the answer
	order list.List                // of *replay, the last used first
}

// NewReplays remembers answers of a number of bytes at most.
func NewReplays(limit int64) *Replays {
	return &Replays{limit: limit, byID: map[string]*list.Element{}}
}

// Bytes are the bytes of the answers, and the most that they may be.
func (r *Replays) Bytes() (used, limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.limit
}

// replay is one answer.
type replay struct {
	id                 string
	reasoning, content string
	calls              []chat.Call
	thought            []int32 // the reasoning with the marker that ends it; nil: there was none
	tokens             []int32 // the rest
}

// size is what a replay takes, in bytes; the constants are a generous estimate of
// the places in list and map.
func (p *replay) size() int64 {
	n := 256 + len(p.id) + len(p.reasoning) + len(p.content) + 4*(len(p.thought)+len(p.tokens))
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
	if old, ok := r.byID[p.id]; ok { // ids are unguessable, so this is a mistake of their maker
		r.bytes -= r.order.Remove(old).(*replay).size()
	}
	r.byID[p.id] = r.order.PushFront(p)
	r.bytes += p.size()
	for r.bytes > r.limit {
		last := r.order.Back()
		old := r.order.Remove(last).(*replay)
		delete(r.byID, old.id)
		r.bytes -= old.size()
	}
}

// Find returns the tokens of an assistant's message and of its reasoning, nil if they
// are not known or the message was changed since. Reasoning that the client left out
// is not changed.
func (r *Replays) Find(m *chat.Message) (tokens, thought []int32) {
	id := m.ID
	if len(m.Calls) > 0 {
		id = m.Calls[0].ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.byID[id]
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
