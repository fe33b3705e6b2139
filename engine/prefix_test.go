package engine

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
)

// TestASnapshotLargerThanTheBudget: a request that would use the beginning of a long
// conversation on disk runs its prompt where memory does not suffice for all of that.
func TestASnapshotLargerThanTheBudget(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	mo := enginetest.Options{MaxTokens: 64, Rewind: 2, CheckpointBytes: 1}
	l := beginOn(t, dir, Options{}, mo)
	long := prompt(1, 600)
	// It has a checkpoint at a branch that comes too early for a file of its own.
	ask(t, l.e, Request{Prompt: long, Branches: []int{100}, MaxTokens: 2, IgnoreEOS: true})
	l.end()

	r := Request{Prompt: append(long[:100:100], 1, 2, 3), MaxTokens: 2, IgnoreEOS: true}
	for _, c := range []struct {
		budget int64
		cached int
	}{{400, 0}, {0, 100}} {
		mo.SequenceBudget = c.budget
		l = beginOn(t, dir, Options{}, mo)
		a := ask(t, l.e, r)
		require.Equal(t, c.cached, a.Usage.Cached, "budget %d", c.budget)
		require.NoError(t, l.e.Close(testContext(t))) // without saving it
		require.NoError(t, l.s.Close(testContext(t)))
		require.Empty(t, l.m.Violations())
	}
}

// TestContinuingWithoutMemoryForCheckpoints: a request that continues an entry has memory
// for the checkpoints that the sequence has until the first step has freed them.
func TestContinuingWithoutMemoryForCheckpoints(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{SequenceBudget: 230, CheckpointBytes: 100})
	e := start(t, m, Options{})
	first := Request{Prompt: prompt(1, 58), MaxTokens: 3, IgnoreEOS: true}
	a := ask(t, e, first)
	require.Len(t, m.Checkpoints(), 1)
	second := Request{Prompt: nextPrompt(first.Prompt, a, prompt(2, 60)...), MaxTokens: 2, IgnoreEOS: true}
	ask(t, e, second)
	require.Empty(t, m.Violations())
}

// TestUncommittedCheckpointsCountNoMore: the checkpoints of a step that was not committed
// do not count for the sequence that its cancelled request leaves.
func TestUncommittedCheckpointsCountNoMore(t *testing.T) {
	s := cacheScheduler(t, 1000)
	s.mem.checkpoint, s.anywhere, s.rewind = 10, false, 1
	id := s.add("", chat(1, 100), nil, false, "", hints{}, 10, 0)
	_, ok := s.plan()
	require.True(t, ok)
	s.commit()
	s.next(id, 1)
	step, ok := s.plan()
	require.True(t, ok)
	require.Len(t, step.Checkpoints, 1)
	s.cancel(id)
	s.abort()
	require.Len(t, s.prefixCache, 1)
	require.EqualValues(t, 100+1, s.use(), "the position of the step stays reserved")
}

// TestARestoredConversationKeepsItsCheckpoints: it has those that it would have if the
// server had not been restarted.
func TestARestoredConversationKeepsItsCheckpoints(t *testing.T) {
	mo := enginetest.Options{MaxTokens: 64, Rewind: 2, CheckpointBytes: 1}
	var has [][]int
	for _, restart := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "cache")
		l := beginOn(t, dir, Options{}, mo)
		r := Request{Prompt: prompt(1, 1400), MaxTokens: 3, IgnoreEOS: true}
		for n := 200; n < 1400; n += 100 {
			r.Branches = append(r.Branches, n)
		}
		a := ask(t, l.e, r)
		if restart {
			l.end()
			l = beginOn(t, dir, Options{}, mo)
		}
		r.Prompt = nextPrompt(r.Prompt, a, prompt(2, 200)...)
		r.Branches = append(r.Branches, 1400, 1500, 1600)
		require.Equal(t, 1402, ask(t, l.e, r).Usage.Cached)
		for _, at := range l.m.Checkpoints() {
			has = append(has, at)
		}
		l.end()
	}
	require.Len(t, has, 2)
	require.Equal(t, has[0], has[1])
}

// TestAForkThatIsSpoiled: the sequence that it was forked from may have the values that are
// not finite, so no further request gets it, whether it was an entry then or became one.
func TestAForkThatIsSpoiled(t *testing.T) {
	for _, running := range []bool{false, true} {
		s := cacheScheduler(t, 1000)
		s.limits.active, s.rewind = 2, 64
		source := s.add("", chat(1, 100), nil, false, "", hints{}, 3, 0)
		_, ok := s.plan()
		require.True(t, ok)
		s.commit()
		if s.next(source, 7); !running {
			s.finish(source)
		}
		fork := s.add("", append(chat(1, 80), chat(2, 5)...), nil, false, "", hints{}, 1, 0)
		step, ok := s.plan()
		require.True(t, ok)
		require.Len(t, step.Forks, 1)
		s.spoil(s.parts[slices.IndexFunc(s.parts, func(p part) bool { return p.task.id == fork })])
		s.commit()
		s.finish(source)
		s.finish(fork)
		require.Equal(t, hit{}, s.findPrefix(&task{prompt: chat(1, 90)}))
		step, ok = s.plan()
		require.True(t, ok)
		require.Len(t, step.Drop, 2)
		s.commit()
		require.Zero(t, s.use())
	}
}

// TestBeginningsThatAllConversationsHave: a few common tokens, such as those that begin every
// text, are no hit, because it would keep a conversation that the request has nothing to do
// with.
func TestBeginningsThatAllConversationsHave(t *testing.T) {
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 4096})
	e := start(t, m, Options{})
	first := prompt(9, 100)
	ask(t, e, Request{Prompt: first, MaxTokens: 2, IgnoreEOS: true})
	for same, cached := range map[int]int{1: 0, leastShared - 1: 0, leastShared: leastShared} {
		other := append(first[:same:same], prompt(uint64(same), 60)...)
		a := ask(t, e, Request{Prompt: other, MaxTokens: 2, IgnoreEOS: true})
		require.Equal(t, cached, a.Usage.Cached, "%d tokens in common", same)
	}
	require.EqualValues(t, 1, e.Stats().Hits.Forked)
}
