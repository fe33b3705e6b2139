package engine

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/diskcache"
	"ringmaster/engine/enginetest"
)

// counting counts the bytes that are read.
type counting struct {
	diskcache.OS
	read atomic.Int64
}

func (c *counting) Open(path string) (diskcache.Source, error) {
	f, err := c.OS.Open(path)
	if err != nil {
		return nil, err
	}
	return countingSource{f, c}, nil
}

type countingSource struct {
	diskcache.Source
	c *counting
}

func (s countingSource) Read(b []byte) (int, error) {
	n, err := s.Source.Read(b)
	s.c.read.Add(int64(n))
	return n, err
}

// agents is an engine for conversations over one system prompt, on a store.
type agents struct {
	*life
	disk   *counting
	rewind int
}

func beginAgents(t *testing.T, dir string, rewind int) *agents {
	t.Helper()
	a := &agents{disk: &counting{}, rewind: rewind}
	a.life = &life{t: t, m: enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: rewind})}
	var err error
	a.s, err = diskcache.Open(dir, diskcache.Options{Budget: 1 << 30, Logger: slog.New(slog.DiscardHandler), Files: a.disk})
	require.NoError(t, err)
	a.s.Use("m", rewind, 0)
	a.e, err = New(a.m, enginetest.Vocabulary{}, Options{CacheEntries: 3, Disk: a.s, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	a.disk.read.Store(0)
	return a
}

// agent returns the first request of an agent.
func agent(system []int32, n int) Request {
	return Request{Prompt: slices.Concat(system, prompt(uint64(n)+2, 100)), Branches: []int{len(system)}, MaxTokens: 5, IgnoreEOS: true}
}

// TestAgentsOnDisk: ten conversations over one system prompt take about its bytes once.
// After a restart another one runs no more than its question and reads no other file, and
// each of the ten continues; with a model of rings, and one that rewinds to any length.
func TestAgentsOnDisk(t *testing.T) {
	for _, rewind := range []int{2, 4096} {
		t.Run(fmt.Sprint("rewind ", rewind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			system := prompt(1, 1000)
			plain := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: rewind}), Options{CacheEntries: -1})
			l := beginAgents(t, dir, rewind)
			var next []Request
			for n := range 10 {
				r := agent(system, n)
				got := ask(t, l.e, r)
				require.Equal(t, ask(t, plain, r).ids(), got.ids())
				r.Prompt = nextPrompt(r.Prompt, got, 7)
				next = append(next, r)
			}
			l.end()
			files, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
			require.NoError(t, err)
			require.Len(t, files, 11)
			var sizes []int64
			all := int64(0)
			for _, path := range files {
				info, err := os.Stat(path)
				require.NoError(t, err)
				sizes = append(sizes, info.Size())
				all += info.Size()
			}
			slices.Sort(sizes)
			shared := sizes[10]
			require.Greater(t, shared, 2*sizes[9])
			require.InEpsilon(t, shared+10*sizes[0], all, 0.01)

			l = beginAgents(t, dir, rewind)
			r := agent(system, 50)
			got := ask(t, l.e, r)
			require.Equal(t, ask(t, plain, r).ids(), got.ids())
			require.Equal(t, 1000, got.Usage.Cached)
			require.Equal(t, shared, l.disk.read.Load())
			require.Equal(t, len(r.Prompt)-1000+4, l.m.Work().Tokens, "the question and all tokens of the answer but the last")
			require.Zero(t, l.m.Work().Forks)
			r = agent(system, 51)
			require.Equal(t, 1000, ask(t, l.e, r).Usage.Cached)
			require.Equal(t, shared, l.disk.read.Load(), "it forks what is in memory")
			l.end()

			l = beginAgents(t, dir, rewind)
			for _, r := range next {
				got := ask(t, l.e, r)
				require.Equal(t, ask(t, plain, r).ids(), got.ids())
				require.Equal(t, len(r.Prompt)-2, got.Usage.Cached)
			}
			l.end()
		})
	}
}

// TestABranchOnDisk: a prompt that leaves a conversation on disk where it has no checkpoint
// runs the last tokens before the branch again, and no others of it.
func TestABranchOnDisk(t *testing.T) {
	const replay = 150
	o := enginetest.Options{Rewind: 2, Tail: 20, Replay: replay}
	dir := filepath.Join(t.TempDir(), "cache")
	plain := start(t, enginetest.NewModel(enginetest.Size, o), Options{CacheEntries: -1})
	l := beginOn(t, dir, Options{CacheEntries: 3}, o)
	whole := Request{Prompt: prompt(1, 1200), MaxTokens: 5, IgnoreEOS: true}
	ask(t, l.e, whole)
	l.end()

	l = beginOn(t, dir, Options{CacheEntries: 3}, o)
	const branch = 700
	r := Request{Prompt: append(slices.Clone(whole.Prompt[:branch]), prompt(2, 60)...), MaxTokens: 5, IgnoreEOS: true}
	got := ask(t, l.e, r)
	require.Equal(t, ask(t, plain, r).ids(), got.ids())
	hits := l.e.Stats().Hits
	require.Equal(t, [2]uint64{1, 1}, [2]uint64{hits.Restored, hits.Replayed}, "%+v", hits)
	require.Equal(t, branch-replay, got.Usage.Cached, "all of the branch but what runs again, once it is in memory")
	require.Equal(t, replay+60+4, l.m.Work().Tokens)
	l.end()
}

// TestADamagedSystemPrompt: when the file that agents share is damaged or missing, the prompt
// runs and nothing that continues it is left; the next agents share again.
func TestADamagedSystemPrompt(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"first byte":  func(t *testing.T, path string) { flip(t, path, 0) },
		"header":      func(t *testing.T, path string) { flip(t, path, 4096+20) },
		"tokens":      func(t *testing.T, path string) { flip(t, path, 4096+900) },
		"state":       func(t *testing.T, path string) { flip(t, path, 3<<20) },
		"missing":     func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"cut to half": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 2<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			system := prompt(1, 1000)
			l := beginAgents(t, dir, 2)
			want := ask(t, l.e, agent(system, 1))
			ask(t, l.e, agent(system, 2))
			l.end()
			l = beginAgents(t, dir, 2)
			e, _ := l.s.Find("", agent(system, 3).Prompt)
			require.Equal(t, 1000, e.Length())
			files, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
			require.NoError(t, err)
			require.Len(t, files, 3)
			harm(t, slices.MaxFunc(files, func(a, b string) int { return int(size(t, a) - size(t, b)) }))
			// It is damaged when an agent continues, which reads both files.
			r := agent(system, 1)
			got := ask(t, l.e, r)
			require.Zero(t, got.Usage.Cached)
			require.Equal(t, want.ids(), got.ids())
			require.Zero(t, l.e.Stats().Disk.Entries)
			require.EqualValues(t, 1, l.e.Stats().Disk.Refused)
			l.end()
			l = beginAgents(t, dir, 2)
			require.Equal(t, 2, l.e.Stats().Disk.Entries)
			require.Equal(t, 1000, ask(t, l.e, agent(system, 4)).Usage.Cached)
			l.end()
		})
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}
