package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// traced is a request of a trace.
type traced struct {
	at       time.Duration
	scope    string
	h        hints
	prompt   []int32
	branches []int
	answer   []int32
	awaited  bool
}

// tracer makes traces. Each of its texts has ids of its own.
type tracer struct {
	random *rand.Rand
	last   int32
	all    []traced
}

func (w *tracer) text(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		w.last++
		out[i] = w.last
	}
	return out
}

// around returns a random number from n/2 to n/2+n.
func (w *tracer) around(n int) int { return n/2 + w.random.IntN(n+1) }

// talk adds a conversation: a request every so often, each with the earlier ones and their
// answers before it. calls: the answers call functions.
func (w *tracer) talk(at, every time.Duration, scope, group string, system []int32, turns, question, answer int, calls bool) (ends time.Duration) {
	prompt, branches := slices.Clone(system), []int{len(system)}
	for turn := range turns {
		prompt = append(prompt, w.text(w.around(question))...)
		branches = append(branches, len(prompt))
		r := traced{at: at, scope: scope, h: hints{group: group}, prompt: slices.Clone(prompt), branches: slices.Clone(branches),
			answer: w.text(w.around(answer)), awaited: calls && turn < turns-1}
		w.all = append(w.all, r)
		prompt = append(prompt, r.answer...)
		branches = append(branches, len(prompt))
		at += time.Duration(float64(every) * (0.5 + w.random.Float64()))
	}
	return at
}

// agents are three programs in the same directory, so that system prompts agree. Each has
// twenty turns, four subagents in the middle of them, and a request that makes a title.
func (w *tracer) agents() {
	system, sub, title := w.text(1200), w.text(800), w.text(60)
	for a := range 3 {
		group := fmt.Sprint("agent ", a)
		begin := time.Duration(a) * 40 * time.Second
		w.talk(begin, time.Second, "", group, title, 1, 60, 10, false)
		w.talk(begin, 20*time.Second, "", group, system, 20, 150, 80, true)
		for s := range 4 {
			w.talk(begin+time.Duration(60+s)*time.Second, 8*time.Second, "", group, sub, 6, 120, 60, true)
		}
	}
}

// chats are thirty people with one system prompt.
func (w *tracer) chats() {
	system := w.text(150)
	for range 30 {
		w.talk(time.Duration(w.random.IntN(600))*time.Second, time.Minute, "", "", system, 1+w.random.IntN(10), 40, 90, false)
	}
}

// document is a long text with ten questions about it, beside chats.
func (w *tracer) document() {
	w.chats()
	text := w.text(4000)
	for i := range 10 {
		w.talk(time.Duration(i)*55*time.Second, time.Minute, "", "", text, 1, 30, 60, false)
	}
}

// flood is a key that asks something new every second, and another with five chats.
func (w *tracer) flood() {
	for range 5 {
		w.talk(time.Duration(w.random.IntN(60))*time.Second, 50*time.Second, "quiet", "", w.text(200), 10, 40, 60, false)
	}
	for i := range 500 {
		w.talk(time.Duration(i)*time.Second, time.Minute, "flood", "", w.text(30), 1, 300, 40, false)
	}
}

// replay runs a trace with so much memory, in tokens, and returns the prompt tokens that
// were computed, in all and by scope. worth is the policy; nil: the scheduler's.
func replay(t *testing.T, all []traced, memory int64, worth func(s *scheduler, next int) func(*entry, []*entry) float64) map[string]int {
	t.Helper()
	zero := time.Unix(1e9, 0)
	s := &scheduler{limits: limits{active: 16, queue: 64, tokenBudget: 512, prefillChunk: 512, cacheSize: 128, rewind: 64, leastShared: leastShared}}
	s.mem.size = func(length int) int64 { return int64(min(length, 1)*64 + length) }
	s.mem.budget, s.mem.checkpoint = memory, 16
	computed := map[string]int{}
	running := map[requestID]*traced{}
	said := map[requestID]int{}
	for i := 0; i < len(all) || len(running) > 0; {
		for i < len(all) && (len(running) == 0 || all[i].at <= s.now.Sub(zero)) {
			r := &all[i]
			i++
			s.now = zero.Add(max(r.at, s.now.Sub(zero)))
			require.Equal(t, hasRoom, s.roomFor("", 1))
			running[s.add("", r.prompt, r.branches, false, r.scope, r.h, len(r.answer), 0)] = r
		}
		if worth != nil {
			s.worth = worth(s, i)
		}
		step, ok := s.plan()
		require.True(t, ok || len(running) == 0)
		require.Empty(t, s.mem.failed)
		require.LessOrEqual(t, s.use(), memory)
		tokens := 0
		for _, e := range step.Entries {
			tokens += len(e.Tokens)
		}
		s.now = s.now.Add(time.Duration(tokens) * time.Millisecond)
		parts, _ := s.commit()
		for _, p := range parts {
			r, id := running[p.task.id], p.task.id
			if p.prompt {
				computed[r.scope] += p.n
			}
			switch {
			case !p.last:
			case said[id] == len(r.answer):
				if r.awaited {
					s.await(id)
				}
				s.finish(id)
				delete(running, id)
			default:
				s.next(id, r.answer[said[id]])
				said[id]++
			}
		}
	}
	return computed
}

// least returns the fewest prompt tokens that any cache would compute: of each prompt those
// that no earlier request of its scope had, and the last.
func least(all []traced) map[string]int {
	type node struct{ next map[int32]*node }
	roots, computed := map[string]*node{}, map[string]int{}
	for _, r := range all {
		at := roots[r.scope]
		if at == nil {
			at = &node{map[int32]*node{}}
			roots[r.scope] = at
		}
		for i, id := range slices.Concat(r.prompt, r.answer) {
			n := at.next[id]
			if i < len(r.prompt) && (n == nil || i == len(r.prompt)-1) {
				computed[r.scope]++
			}
			if n == nil {
				n = &node{map[int32]*node{}}
				at.next[id] = n
			}
			at = n
		}
	}
	return computed
}

// leastRecent is the value of an entry in LRU.
func leastRecent(s *scheduler, _ int) func(*entry, []*entry) float64 {
	return func(k *entry, _ []*entry) float64 { return float64(k.since.UnixNano()) }
}

// clairvoyant is the value of an entry if all later requests are known, as in Belady's
// algorithm with costs and sizes: the tokens that only this entry saves the next request
// that needs it, divided by the time until then and by its memory.
func clairvoyant(all []traced) func(s *scheduler, next int) func(*entry, []*entry) float64 {
	return func(s *scheduler, next int) func(*entry, []*entry) float64 {
		return func(k *entry, among []*entry) float64 {
			for _, r := range all[next:] {
				if r.scope != k.scope || r.prompt[0] != k.tokens[0] {
					continue
				}
				saves := k.forkable(commonPrefix(k.tokens, r.prompt), s.rewind)
				for _, other := range among {
					if other != k && other.scope == k.scope && other.tokens[0] == r.prompt[0] {
						saves -= min(saves, other.forkable(commonPrefix(other.tokens, r.prompt), s.rewind))
					}
				}
				if saves > 0 {
					return float64(saves) / (r.at.Seconds() + 1 - s.now.Sub(time.Unix(1e9, 0)).Seconds() + 1e3) / s.share(k)
				}
			}
			return 0
		}
	}
}

// TestPolicy replays traces of what people run with the scheduler's policy, with LRU, and
// with a policy that knows the future. It prints the prompt tokens that each computes,
// divided by the fewest that are possible with any memory. The scheduler's policy must
// compute fewer than LRU over all traces and for a key beside one that floods, and hardly
// more in any trace.
func TestPolicy(t *testing.T) {
	var all [2]float64 // sums of ours and LRU's
	for name, add := range map[string]func(*tracer){"agents": (*tracer).agents, "chats": (*tracer).chats, "document": (*tracer).document, "flood": (*tracer).flood} {
		w := &tracer{random: rand.New(rand.NewPCG(1, 5))}
		add(w)
		slices.SortStableFunc(w.all, func(a, b traced) int { return cmp.Compare(a.at, b.at) })
		total, best := 0, least(w.all)
		for _, r := range w.all {
			total += len(r.prompt)
		}
		for _, memory := range []int64{6_000, 10_000, 20_000} {
			by := func(worth func(*scheduler, int) func(*entry, []*entry) float64) (all, quiet float64) {
				n, sum, fewest := replay(t, w.all, memory, worth), 0, 0
				for scope := range best {
					sum, fewest = sum+n[scope], fewest+best[scope]
				}
				return float64(sum) / float64(fewest), float64(n["quiet"]) / float64(max(best["quiet"], 1))
			}
			ours, quiet := by(nil)
			lru, quietLRU := by(leastRecent)
			future, quietFuture := by(clairvoyant(w.all))
			t.Logf("%-8s %6d prompt tokens, memory for %5d: computed %.2f of the fewest, LRU %.2f, knowing the future %.2f", name, total, memory, ours, lru, future)
			if best["quiet"] > 0 {
				t.Logf("         the key beside the flood: %.2f, LRU %.2f, knowing the future %.2f", quiet, quietLRU, quietFuture)
			}
			require.LessOrEqual(t, quiet, quietLRU)
			require.Less(t, ours, 1.2*lru)
			all[0], all[1] = all[0]+ours, all[1]+lru
			if name == "agents" && memory == 20_000 { // they fit
				require.Less(t, ours, 1.1)
			}
		}
	}
	require.Less(t, all[0], all[1])
}
