package run

import (
	"container/list"
	"slices"
	"sync"

	"ringmaster/model/chat"
)

// Replays remembers the tokens of answers that called functions, by the ids of
// their calls. When a client sends such an answer back, its prompt has the very
// tokens that were sampled, so the prefix cache finds them, and the model does not
// see a call in other words than its own. The least recently used are forgotten.
// It is safe for concurrent use.
type Replays struct {
	limit int64 // bytes

	mu     sync.Mutex
	bytes  int64
	byCall map[string]*list.Element // of order, by the id of the first call
	order  list.List                // of *replay, the last used first
}

// NewReplays remembers answers of a number of bytes at most.
func NewReplays(limit int64) *Replays {
	return &Replays{limit: limit, byCall: map[string]*list.Element{}}
}

// Bytes are the bytes of the answers, and the most that they may be.
func (r *Replays) Bytes() (used, limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.limit
}

// replay is one answer.
type replay struct {
	content string
	calls   []chat.Call
	tokens  []int32
}

// size is what a replay takes, in bytes; the constants are a generous estimate of
// the places in list and map.
func (p *replay) size() int64 {
	n := 256 + len(p.content) + 4*len(p.tokens)
	for _, c := range p.calls {
		n += 64 + len(c.ID) + len(c.Name) + len(c.Arguments)
	}
	return int64(n)
}

func (r *Replays) remember(content string, calls []chat.Call, tokens []int32) {
	p := &replay{content, slices.Clone(calls), slices.Clone(tokens)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.size() > r.limit {
		return
	}
	r.byCall[calls[0].ID] = r.order.PushFront(p)
	r.bytes += p.size()
	for r.bytes > r.limit {
		last := r.order.Back()
		old := r.order.Remove(last).(*replay)
		delete(r.byCall, old.calls[0].ID)
		r.bytes -= old.size()
	}
}

// Find returns the tokens of an assistant's message, nil if it is not known or was
// changed since.
func (r *Replays) Find(m *chat.Message) []int32 {
	if len(m.Calls) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.byCall[m.Calls[0].ID]
	if !ok {
		return nil
	}
	p := at.Value.(*replay)
	if p.content != m.Content || !slices.EqualFunc(p.calls, m.Calls, func(a, b chat.Call) bool {
		return a.ID == b.ID && a.Name == b.Name && sameJSON(a.Arguments, b.Arguments)
	}) {
		return nil
	}
	r.order.MoveToFront(at)
	return p.tokens
}
