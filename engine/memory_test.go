package engine

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
)

// TestARequestLargerThanTheBudget: it is refused when it is submitted, together with all
// others of the same call.
func TestARequestLargerThanTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{SequenceBudget: 10 + 64})
		e := start(t, m, Options{})
		ask(t, e, Request{Prompt: make([]int32, 60), MaxTokens: 5, IgnoreEOS: true})
		for _, r := range []Request{
			{Prompt: make([]int32, 60), MaxTokens: 6}, {Prompt: make([]int32, 65), MaxTokens: 1}, {Prompt: make([]int32, 65)},
		} {
			_, err := e.SubmitAll(t.Context(), []Request{{Prompt: encode("x"), MaxTokens: 1}, r})
			require.ErrorIs(t, err, ErrTooLarge)
			require.ErrorContains(t, err, "needs 138 bytes and its log-probabilities 0, all sequences together have 74")
		}
		require.Zero(t, e.Stats().Queued+e.Stats().Active)
		require.NoError(t, e.Ready())
	})
}

// TestAnAnswerThatOutgrowsTheBudget: a request without max_tokens ends with an error that
// names the memory, after all tokens that fit.
func TestAnAnswerThatOutgrowsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{SequenceBudget: 10 + 64})
		e := start(t, m, Options{})
		s, said := submit(t, e, Request{Prompt: encode("endless"), IgnoreEOS: true}), 0
		ev, err := s.Next(t.Context())
		for ; err == nil; ev, err = s.Next(t.Context()) {
			said = max(said, ev.Usage.Completion)
		}
		require.ErrorIs(t, err, ErrNoMemory)
		require.ErrorContains(t, err, "74 of 74 bytes")
		require.Equal(t, 64-len(encode("endless"))+1, said, "the last token sampled needs no memory")
		require.EqualValues(t, 1, e.Stats().NoMemory)

		b := ask(t, e, Request{Prompt: encode("next"), MaxTokens: 3, IgnoreEOS: true})
		require.Equal(t, 3, b.Usage.Completion)
	})
}

// TestMemoryIsSetAsideForMaxTokens: of requests that limit their answers, as many run at
// the same time as memory surely suffices for. None of them fails, and the others wait in
// the queue.
func TestMemoryIsSetAsideForMaxTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, gate := gated(enginetest.Options{SequenceBudget: 2*(10+64) + 73})
		e := start(t, m, Options{MaxActive: 8, QueueLength: 8})
		var streams []*Stream
		for range 6 {
			streams = append(streams, submit(t, e, Request{Prompt: encode("a prompt"), MaxTokens: 50, IgnoreEOS: true}))
		}
		gate <- nil
		synctest.Wait()
		stats := e.Stats()
		require.Equal(t, []int{2, 4}, []int{stats.Active, stats.Queued})
		require.Equal(t, []int64{2 * 74, 2*74 + 73}, []int64{stats.Memory, stats.MemoryBudget})
		close(gate)
		for _, s := range streams {
			require.Equal(t, 50, finish(t, s).Usage.Completion)
		}
		stats = e.Stats()
		require.Zero(t, stats.NoMemory)
		require.EqualValues(t, 4, stats.Evicted, "each ended request made room for one that waited")
	})
}

// TestLogprobsTakeMemory: the log-probabilities that a request may get count like its
// sequence until it has ended.
func TestLogprobsTakeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one = 10 + 16 + 5*(1+2)*logprobBytes
		m, gate := gated(enginetest.Options{SequenceBudget: 2*one - 1})
		e := start(t, m, Options{})
		r := Request{Prompt: encode("a prompt"), MaxTokens: 5, IgnoreEOS: true, Logprobs: true, TopLogprobs: 2}
		first, second := submit(t, e, r), submit(t, e, r)
		gate <- nil
		synctest.Wait()
		stats := e.Stats()
		require.Equal(t, []int{1, 1}, []int{stats.Active, stats.Queued})
		require.EqualValues(t, one, stats.Memory)
		r.PromptLogprobs, r.MaxTokens = true, 10
		_, err := e.Submit(t.Context(), r)
		require.ErrorIs(t, err, ErrTooLarge)
		close(gate)
		for _, s := range []*Stream{first, second} {
			finish(t, s)
		}
	})
}

// TestEntriesEndByTime: an entry of the prefix cache is dropped when it has not been
// used for CacheTimeout, also while nothing else happens.
func TestEntriesEndByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
		e := start(t, m, Options{CacheTimeout: time.Minute})
		ask(t, e, Request{Prompt: encode("one"), MaxTokens: 1})
		<-time.After(40 * time.Second)
		ask(t, e, Request{Prompt: encode("two"), MaxTokens: 1})
		require.Equal(t, 2, e.Stats().CacheEntries)
		<-time.After(20*time.Second - 1)
		synctest.Wait()
		require.Len(t, m.Live(), 2)
		<-time.After(1)
		synctest.Wait()
		require.Equal(t, [][]int32{encode("two")}, tokensOf(m))
		ask(t, e, Request{Prompt: encode("two!"), MaxTokens: 1})
		<-time.After(time.Minute - 1)
		synctest.Wait()
		require.Equal(t, [][]int32{encode("two!")}, tokensOf(m), "used again, it is kept as long again")
		<-time.After(1)
		synctest.Wait()
		require.Empty(t, m.Live())
		require.Zero(t, e.Stats().CacheEntries)
		require.EqualValues(t, 2, e.Stats().Expired)

		<-time.After(24 * time.Hour)
		s := submit(t, e, Request{Prompt: encode("cancelled after a day"), MaxTokens: 100, IgnoreEOS: true})
		_, err := s.Next(t.Context())
		require.NoError(t, err)
		s.Close()
		synctest.Wait()
		require.Equal(t, 1, e.Stats().CacheEntries, "kept from now on, not from when the engine last worked")
	})
}

// TestEntriesWithoutEnd: a negative CacheTimeout keeps them.
func TestEntriesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{})
		e := start(t, m, Options{CacheTimeout: -1})
		ask(t, e, Request{Prompt: encode("one"), MaxTokens: 1})
		<-time.After(1000 * time.Hour)
		synctest.Wait()
		require.Len(t, m.Live(), 1)
	})
}

// tokensOf returns the sequences that the model holds, in their order.
func tokensOf(m *enginetest.Model) (all [][]int32) {
	live := m.Live()
	for _, id := range slices.Sorted(maps.Keys(live)) {
		all = append(all, live[id])
	}
	return all
}
