package reuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

// The bounds of requests, in tokens. Prompts are long enough for checkpoints, for a copy on
// disk, and for forks that deepseek4 cannot make by a rewind.
const (
	contextLength = 640
	longestAnswer = 16
	longestPrompt = contextLength - 3*longestAnswer
)

// node is a conversation up to the end of an answer.
type node struct {
	scope  string
	prompt []int32
	ends   []int   // where its turns begin, and the end of the prompt
	tokens []int32 // prompt and answer
}

// asked is a request with the answer that a server without a cache gives.
type asked struct {
	engine.Request
	kind   string
	want   answer
	stream *engine.Stream
	gone   bool // cancelled, or lost with its server
}

// answer is what a request got.
type answer struct {
	tokens []engine.Token
	usage  engine.Usage
	finish engine.FinishReason
}

// read reads an answer to its end.
func read(ctx context.Context, s *engine.Stream) (a answer, err error) {
	for {
		ev, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		a.tokens = append(a.tokens, ev.Tokens...)
		if ev.Finish != engine.FinishNone {
			a.finish, a.usage = ev.Finish, ev.Usage
		}
	}
}

// same returns an error that says how two answers differ, nil if they have the same tokens
// with the same log-probabilities, bit for bit.
func same(want, got answer) error {
	for i := range min(len(want.tokens), len(got.tokens)) {
		w, g := want.tokens[i], got.tokens[i]
		equal := w.ID == g.ID && math.Float64bits(w.Logprob) == math.Float64bits(g.Logprob) &&
			slices.EqualFunc(w.Top, g.Top, func(a, b engine.Alternative) bool { return a.ID == b.ID && a.Logprob == b.Logprob })
		if !equal {
			return fmt.Errorf("token %d of %d is %d (%v), without a cache %d (%v)", i, len(want.tokens), g.ID, g.Logprob, w.ID, w.Logprob)
		}
	}
	if len(want.tokens) != len(got.tokens) || want.finish != got.finish {
		return fmt.Errorf("%d tokens that end by %s, without a cache %d by %s", len(got.tokens), got.finish, len(want.tokens), want.finish)
	}
	return nil
}

// history draws the requests of clients whose prompts share beginnings.
type history struct {
	t       require.TestingT
	ctx     context.Context
	random  *rand.Rand
	plain   *engine.Engine // without a cache
	systems [][]int32      // system prompts
	nodes   []*node
}

func newHistory(t require.TestingT, ctx context.Context, random *rand.Rand, plain *engine.Engine) *history {
	h := &history{t: t, ctx: ctx, random: random, plain: plain}
	for range 1 + random.IntN(2) {
		h.systems = append(h.systems, h.text(30+random.IntN(200)))
	}
	return h
}

// text returns n random tokens that do not end an answer.
func (h *history) text(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = h.random.Int32N(enginetest.BOS)
	}
	return out
}

// message is a turn of a user.
func (h *history) message() []int32 {
	return h.text(1 + h.random.IntN([]int{8, 100, 200}[h.random.IntN(3)]))
}

// begin returns a new conversation, mostly with a system prompt that others have.
func (h *history) begin() node {
	n := node{}
	if h.random.IntN(8) == 0 {
		n.scope = "another key"
	}
	if h.random.IntN(6) > 0 {
		n.tokens = slices.Clone(h.systems[h.random.IntN(len(h.systems))])
		n.ends = []int{len(n.tokens)}
	}
	return n
}

// before returns a node's conversation up to n of its tokens.
func (k *node) before(n int) node {
	i, _ := slices.BinarySearch(k.ends, n+1)
	return node{scope: k.scope, tokens: slices.Clone(k.tokens[:n]), ends: slices.Clone(k.ends[:i])}
}

// say adds a turn.
func (n *node) say(message []int32) {
	if len(n.tokens) > 0 && !slices.Contains(n.ends, len(n.tokens)) {
		n.ends = append(n.ends, len(n.tokens))
	}
	n.tokens = append(n.tokens, message...)
}

// next draws one or several requests that arrive at once, with the answers that they must
// get.
func (h *history) next() (all []*asked) {
	r := h.random
	kind := []string{"new", "new", "continued", "continued", "regenerated", "edited", "branched", "together"}[r.IntN(8)]
	if len(h.nodes) == 0 && kind != "together" {
		kind = "new"
	}
	n := h.begin()
	if kind != "new" && kind != "together" {
		k := h.nodes[r.IntN(len(h.nodes))]
		switch kind {
		case "continued":
			n = k.before(len(k.tokens))
		case "regenerated":
			n = k.before(len(k.prompt))
		case "edited":
			n = k.before(append(k.ends, len(k.tokens))[r.IntN(len(k.ends)+1)])
		case "branched":
			n = k.before(1 + r.IntN(len(k.tokens)))
		}
	}
	if kind != "regenerated" {
		n.say(h.message())
	}
	if kind == "together" { // with a prefix that no sequence has yet
		n = node{scope: n.scope, tokens: h.text(60 + r.IntN(300))}
		for range 2 + r.IntN(3) {
			one := n.before(len(n.tokens))
			one.say(h.message())
			all = append(all, h.request(kind, one))
		}
		return all
	}
	choices := 1
	if r.IntN(6) == 0 {
		kind, choices = "choices", 2+r.IntN(2)
	}
	for range choices {
		all = append(all, h.request(kind, n))
	}
	return all
}

// request makes a request of a conversation, asks it of the server without a cache, and
// makes its answer part of the tree.
func (h *history) request(kind string, n node) *asked {
	r := h.random
	if len(n.tokens) > longestPrompt { // the conversation begins again
		n = node{scope: n.scope, tokens: n.tokens[len(n.tokens)-longestPrompt/4:]}
	}
	n.ends = slices.DeleteFunc(n.ends, func(end int) bool { return end >= len(n.tokens) })
	seed := r.Uint64()
	q := engine.Request{Prompt: n.tokens, CacheScope: n.scope, MaxTokens: 1 + r.IntN(longestAnswer), IgnoreEOS: r.IntN(2) == 0,
		Logprobs: true, TopLogprobs: 2, Sampling: engine.Sampling{Seed: &seed, Temperature: float64(r.IntN(2))}}
	if r.IntN(3) > 0 {
		q.Branches = append(slices.Clone(n.ends), len(n.tokens))
	}
	q.Tenant = []string{"", "a", "b"}[r.IntN(3)]
	q.PromptLogprobs = r.IntN(20) == 0
	s, err := h.plain.Submit(h.ctx, q)
	require.NoError(h.t, err)
	a := &asked{Request: q, kind: kind}
	a.want, err = read(h.ctx, s)
	require.NoError(h.t, err)
	require.Zero(h.t, a.want.usage.Cached)
	k := &node{scope: n.scope, prompt: n.tokens, tokens: slices.Clone(n.tokens), ends: append(n.ends, len(n.tokens))}
	for _, token := range a.want.tokens {
		k.tokens = append(k.tokens, token.ID)
	}
	h.nodes = append(h.nodes, k)
	return a
}
