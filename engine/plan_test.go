package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkPlan is a plan beside many long prompts that wait for one prefill, long entries
// of the prefix cache and sequences that decode.
func BenchmarkPlan(b *testing.B) {
	const length, shared = 100_000, 90_000
	for _, c := range []struct {
		name   string
		budget int64
	}{{"places", 0}, {"memory", 1 << 40}} {
		for _, first := range []bool{true, false} {
			b.Run(c.name+map[bool]string{true: "/first", false: "/next"}[first], func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					s := busyScheduler(length, shared, c.budget)
					if !first {
						s.plan()
						s.abort()
					}
					b.StartTimer()
					s.plan()
				}
			})
		}
	}
	b.Run("insert", func(b *testing.B) {
		s := busyScheduler(length, shared, 0)
		for b.Loop() {
			k := &entry{sequence: &sequence{seq: 1000, tokens: slices.Clone(s.prefixCache[0].tokens)}}
			s.insert(k)
			s.removeEntry(k)
		}
	})
	b.Run("victims", func(b *testing.B) {
		s := busyScheduler(length, shared, 1<<40)
		for b.Loop() {
			require.Len(b, s.victims(64*length, nil), 64)
		}
	})
}

// busyScheduler has 128 entries, 8 active requests and 64 prompts that wait for one of them.
func busyScheduler(length, shared int, budget int64) *scheduler {
	text := make([]int32, length)
	for i := range text {
		text[i] = int32(i)
	}
	other := func(n int) []int32 {
		out := slices.Clone(text)
		for i := shared; i < len(out); i++ {
			out[i] = int32(n)
		}
		return out
	}
	s := &scheduler{limits: limits{active: 16, queue: 64, tokenBudget: 512, prefillChunk: 512, cacheSize: 128, rewind: 64, leastShared: leastShared}, now: time.Unix(0, 0)}
	if budget > 0 {
		s.mem.size, s.mem.budget, s.mem.checkpoint = func(n int) int64 { return int64(n) }, budget, 100
	}
	sequenceOf := func(tokens []int32) *sequence {
		s.lastSeq++
		s.mem.name(s.lastSeq, len(tokens))
		return &sequence{seq: s.lastSeq, tokens: tokens, peak: len(tokens), checkpoints: []int{4096, 8192, shared / 2}}
	}
	for n := range 128 {
		s.insert(&entry{sequence: sequenceOf(other(n)), since: s.now})
	}
	for n := range 8 {
		s.lastID++
		prompt := other(1000 + n)
		t := &task{id: s.lastID, sequence: sequenceOf(slices.Clone(prompt[:length-1])), prompt: prompt, named: true, decode: n > 0, pos: length - 1, todo: []int32{1}}
		if !t.decode {
			t.tokens, t.peak, t.pos = t.tokens[:shared/2], shared/2, shared/2
			t.todo = t.prompt[shared/2:]
		}
		s.active = append(s.active, t)
		s.join("")
	}
	for n := range 64 {
		s.add("", other(2000+n), []int{shared}, false, "", hints{}, 1, 0)
	}
	return s
}

// TestMatchFollowsTheSequence: what a request knows of a sequence stays right while that
// grows and is rewound.
func TestMatchFollowsTheSequence(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	q, prompts := &sequence{seq: 1}, []*task{}
	for range 8 {
		r := &task{prompt: make([]int32, 1+random.IntN(300))}
		for range random.IntN(3) {
			r.prompt[random.IntN(len(r.prompt))] = 1
		}
		prompts = append(prompts, r)
	}
	s := &scheduler{limits: limits{active: 1, tokenBudget: 512, prefillChunk: 512, rewind: 512}}
	a := &task{id: 1, sequence: q}
	s.active = []*task{a}
	s.join("")
	for range 500 {
		a.pos = max(0, len(q.tokens)-random.IntN(3)*random.IntN(100))
		a.todo = make([]int32, 1+random.IntN(100))
		if random.IntN(2) == 0 {
			a.todo[random.IntN(len(a.todo))] = 1
		}
		_, ok := s.plan()
		require.True(t, ok)
		s.commit()
		for _, r := range prompts {
			require.Equal(t, commonPrefix(q.tokens, r.prompt), r.match(q))
			for i := range r.match(q) {
				require.Equal(t, q.tokens[i], r.prompt[i])
			}
		}
	}
}

// TestForkableFrom: it is where forkable begins to find more.
func TestForkableFrom(t *testing.T) {
	for _, q := range []*sequence{
		{tokens: make([]int32, 20), peak: 20}, {tokens: make([]int32, 20), peak: 20, checkpoints: []int{5, 10, 18}},
		{tokens: make([]int32, 20), peak: 26, checkpoints: []int{5}},
	} {
		for _, rewind := range []int{0, 3, 100} {
			for n := range 21 {
				from := q.forkableFrom(n, rewind)
				for most := n; most <= 20; most++ {
					require.Equal(t, most >= from && most > 0, q.forkable(most, rewind) >= max(n, 1), "%v, rewind %d, %d to %d", q, rewind, n, most)
				}
			}
		}
	}
}
