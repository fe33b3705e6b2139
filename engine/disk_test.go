package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/diskcache"
	"ringmaster/engine/enginetest"
)

// openStore opens a directory for the duration of a test.
func openStore(t *testing.T, dir string, budget int64) *diskcache.Store {
	t.Helper()
	s, err := diskcache.Open(dir, diskcache.Options{Budget: budget, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.Use("m", 2, 0)
	return s
}

// life is an engine on a store during one life of a server.
type life struct {
	t *testing.T
	m *enginetest.Model
	e *Engine
	s *diskcache.Store
}

func begin(t *testing.T, dir string, o Options) *life {
	t.Helper()
	return beginOn(t, dir, o, enginetest.Options{MaxTokens: 64, Rewind: 2})
}

func beginOn(t *testing.T, dir string, o Options, mo enginetest.Options) *life {
	t.Helper()
	l := &life{t: t, m: enginetest.NewModel(enginetest.Size, mo), s: openStore(t, dir, 1<<30)}
	l.s.Use("m", 2, mo.Replay)
	o.Disk, o.Logger = l.s, slog.New(slog.DiscardHandler)
	var err error
	l.e, err = New(l.m, enginetest.Vocabulary{}, o)
	require.NoError(t, err)
	return l
}

// end ends the life as a server does.
func (l *life) end() {
	l.t.Helper()
	ctx := testContext(l.t)
	require.NoError(l.t, l.e.Flush(ctx))
	require.NoError(l.t, l.e.Close(ctx))
	require.NoError(l.t, l.s.Close(ctx))
	require.Empty(l.t, l.m.Violations())
}

// prompt returns n ids.
func prompt(seed uint64, n int) (out []int32) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		out = append(out, int32(r.IntN(256)))
	}
	return out
}

// nextPrompt returns a conversation's next prompt.
func nextPrompt(before []int32, a answer, more ...int32) []int32 {
	next := append(append([]int32(nil), before...), a.ids()...)
	return append(next, more...)
}

// TestAConversationOutlivesItsServer: another engine continues a conversation with the
// tokens that an engine without a disk has, also without any prefix cache in memory.
func TestAConversationOutlivesItsServer(t *testing.T) {
	for _, entries := range []int{-1, 2} {
		t.Run(fmt.Sprint(entries, " entries"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			p := prompt(1, 300)
			plain := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2}), Options{CacheEntries: -1})
			for turn := range 4 {
				r := Request{Prompt: p, MaxTokens: 7, IgnoreEOS: true, CacheScope: "a"}
				want := ask(t, plain, r)
				l := begin(t, dir, Options{CacheEntries: entries})
				got := ask(t, l.e, r)
				require.Equal(t, want.ids(), got.ids(), "turn %d", turn)
				if turn > 0 {
					// All but the last token of the answer, which never ran.
					require.Equal(t, len(p)-3, got.Usage.Cached+1, "turn %d", turn)
					st := l.e.Stats().Disk
					require.EqualValues(t, 1, st.Hits)
					require.EqualValues(t, got.Usage.Cached, st.HitTokens)
				} else {
					require.Zero(t, got.Usage.Cached)
				}
				l.end()
				p = nextPrompt(p, got, 5, 6, 7)
			}
			list, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
			require.NoError(t, err)
			require.Len(t, list, 4)
			for _, f := range list {
				info, err := os.Stat(f)
				require.NoError(t, err)
				require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			}
			info, err := os.Stat(dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}

// TestScopesOnDisk: a request finds snapshots of its own scope only.
func TestScopesOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	r := Request{Prompt: prompt(1, 200), MaxTokens: 2, IgnoreEOS: true, CacheScope: "a"}
	l := begin(t, dir, Options{})
	ask(t, l.e, r)
	l.end()
	l = begin(t, dir, Options{})
	for _, scope := range []string{"", "b", "a\x00"} {
		r.CacheScope = scope
		require.Zero(t, ask(t, l.e, r).Usage.Cached)
	}
	r.CacheScope = "a"
	require.Equal(t, 199, ask(t, l.e, r).Usage.Cached)
	l.end()
}

// TestMemoryFirst: the engine asks the disk only for what the prefix cache in memory does
// not have, and never for a prompt with log-probabilities.
func TestMemoryFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	r := Request{Prompt: prompt(1, 200), MaxTokens: 2, IgnoreEOS: true}
	l := begin(t, dir, Options{})
	a := ask(t, l.e, r)
	require.NoError(t, l.e.Flush(testContext(t)))
	r.Prompt = nextPrompt(r.Prompt, a, 9)
	require.Equal(t, 201, ask(t, l.e, r).Usage.Cached)
	require.Zero(t, l.e.Stats().Disk.Hits)
	l.end()

	l = begin(t, dir, Options{})
	r.PromptLogprobs, r.Logprobs = true, true
	require.Zero(t, ask(t, l.e, r).Usage.Cached)
	require.Zero(t, l.e.Stats().Disk.Hits)
	l.end()
}

// TestDamagedOnDisk: whatever happens to a file, the answer is the same, and the file is
// removed and counted.
func TestDamagedOnDisk(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"a byte of the state": func(t *testing.T, path string) { flip(t, path, 1<<20) },
		"a byte of the ids":   func(t *testing.T, path string) { flip(t, path, 4096+400) },
		"a byte of the head":  func(t *testing.T, path string) { flip(t, path, 4096+2) },
		"the end": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()-1))
		},
		"all of it": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			r := Request{Prompt: prompt(1, 200), MaxTokens: 2, IgnoreEOS: true}
			l := begin(t, dir, Options{})
			want := ask(t, l.e, r).ids()
			l.end()
			list, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
			require.NoError(t, err)
			require.Len(t, list, 1)

			// What was restored holds the memory that the prompt needs.
			l = beginOn(t, dir, Options{}, enginetest.Options{MaxTokens: 64, Rewind: 2, SequenceBudget: 300})
			harm(t, list[0]) // while the server runs
			a := ask(t, l.e, r)
			require.Zero(t, a.Usage.Cached)
			require.Equal(t, want, a.ids())
			st := l.e.Stats().Disk
			require.EqualValues(t, 1, st.Refused+st.Errors)
			require.Zero(t, st.Hits)
			l.end()
			l = begin(t, dir, Options{}) // the sequence was saved again
			require.Equal(t, 199, ask(t, l.e, r).Usage.Cached)
			l.end()
		})
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

// TestConversationsOnDisk: many conversations at once, more than places, with
// cancellations, restarts in between and a small budget of memory, get the same answers
// as from one engine without a disk.
func TestConversationsOnDisk(t *testing.T) {
	const conversations, turns = 6, 5
	dir := filepath.Join(t.TempDir(), "cache")
	plain := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2}), Options{CacheEntries: -1, MaxActive: 8})
	prompts := make([][]int32, conversations)
	for i := range prompts {
		prompts[i] = prompt(uint64(i), 150+40*i)
	}
	hits := uint64(0)
	for turn := range turns {
		mo := enginetest.Options{MaxTokens: 64, Rewind: 2}
		if turn%2 == 1 {
			mo.SequenceBudget = 3 * 1100 // three sequences
		}
		l := beginOn(t, dir, Options{CacheEntries: turn % 3, MaxActive: 3}, mo)
		if turn%3 == 0 {
			l.e.sched.cacheSize = 0
		}
		var wg sync.WaitGroup
		answers := make([]answer, conversations)
		errs := make([]error, conversations)
		ctx := testContext(t)
		for i := range conversations {
			wg.Go(func() {
				r := Request{Prompt: prompts[i], MaxTokens: 5, IgnoreEOS: true, CacheScope: fmt.Sprint(i % 2)}
				if i%2 == 0 { // a client that disconnects at once, and asks again
					gone, leave := context.WithCancel(ctx)
					s, err := l.e.Submit(gone, r)
					leave()
					if err == nil {
						_, err = s.Next(gone)
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						errs[i] = err
						return
					}
				}
				s, err := l.e.Submit(ctx, r)
				if err == nil {
					answers[i], err = collect(ctx, s)
				}
				errs[i] = err
			})
		}
		wg.Wait()
		for i, a := range answers {
			require.NoError(t, errs[i])
			want := ask(t, plain, Request{Prompt: prompts[i], MaxTokens: 5, IgnoreEOS: true})
			require.Equal(t, want.ids(), a.ids(), "turn %d, conversation %d", turn, i)
			prompts[i] = nextPrompt(prompts[i], a, int32(turn))
		}
		hits += l.e.Stats().Disk.Hits
		l.end()
	}
	require.NotZero(t, hits)
}

// TestSavingWaits: a sequence is saved after it was idle for saveAfter, and no sooner.
func TestSavingWaits(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	l := begin(t, filepath.Join(t.TempDir(), "cache"), Options{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	r := Request{Prompt: prompt(1, 200), MaxTokens: 2, IgnoreEOS: true}
	ask(t, l.e, r)
	require.Zero(t, l.e.Stats().Disk.Entries)
	mu.Lock()
	now = now.Add(saveAfter)
	mu.Unlock()
	l.e.wakeLoop()
	require.Eventually(t, func() bool { return l.e.Stats().Disk.Saved == 1 }, patience, time.Millisecond)
	l.end()
}
