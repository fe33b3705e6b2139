package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/diskcache"
	"ringmaster/engine/enginetest"
)

// stuckDisk is a disk on which no operation ends while it is stuck.
type stuckDisk struct {
	diskcache.OS
	mu   sync.Mutex
	free chan struct{} // nil: it works
}

func (d *stuckDisk) stick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = make(chan struct{})
}

func (d *stuckDisk) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.free)
	d.free = nil
}

func (d *stuckDisk) wait() {
	d.mu.Lock()
	free := d.free
	d.mu.Unlock()
	if free != nil {
		<-free
	}
}

func (d *stuckDisk) Create(path string) (diskcache.File, error) {
	d.wait()
	return d.OS.Create(path)
}

func (d *stuckDisk) Open(path string) (diskcache.Source, error) {
	d.wait()
	return d.OS.Open(path)
}

func (d *stuckDisk) Remove(path string) error {
	d.wait()
	return d.OS.Remove(path)
}

func (d *stuckDisk) Touch(path string, at time.Time) error {
	d.wait()
	return d.OS.Touch(path, at)
}

// TestADiskThatHangs: whatever the disk was doing when it began to hang, requests get the
// same tokens, at once unless their own sequence was being read. What cannot be saved is
// dropped, a stop does not wait, and the log says so.
func TestADiskThatHangs(t *testing.T) {
	r := Request{Prompt: prompt(1, 200), MaxTokens: 4, IgnoreEOS: true}
	another := Request{Prompt: prompt(2, 200), MaxTokens: 4, IgnoreEOS: true}
	plain := start(t, enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2}), Options{CacheEntries: -1})
	first, wantOther := ask(t, plain, r), ask(t, plain, another)
	next := r
	next.Prompt = nextPrompt(r.Prompt, first, 5)
	want := ask(t, plain, next)
	dir := t.TempDir() // of the outer test: it is removed after the last goroutine of the bubble

	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		disk := &stuckDisk{}
		store, err := diskcache.Open(filepath.Join(dir, "cache"), diskcache.Options{Budget: 1 << 30, Logger: slog.New(slog.DiscardHandler), Files: disk})
		require.NoError(t, err)
		store.Use("m", 2, 0)
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2})
		e, err := New(m, enginetest.Vocabulary{}, Options{CacheEntries: -1, Disk: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.Equal(t, first.ids(), ask(t, e, r).ids())
		require.NoError(t, e.Flush(ctx))
		synctest.Wait()
		for e.Stats().Disk.Saved == 0 { // the last sync
			<-time.After(time.Second) // of the bubble
		}

		// While a read hangs, other requests are answered; then the prompt runs.
		disk.stick()
		began := time.Now()
		waiting := submit(t, e, next)
		for range 3 {
			require.Equal(t, wantOther.ids(), ask(t, e, another).ids())
		}
		require.Less(t, time.Since(began), time.Second)
		require.False(t, e.Stats().Disk.Hangs)
		got := finish(t, waiting)
		require.Equal(t, want.ids(), got.ids())
		require.Zero(t, got.Usage.Cached)
		require.Less(t, time.Since(began), 11*time.Second)
		require.True(t, e.Stats().Disk.Hangs)

		// Now the disk is not used.
		began = time.Now()
		require.Equal(t, want.ids(), ask(t, e, next).ids())
		require.Less(t, time.Since(began), time.Second)

		// When it responds, it is used again.
		disk.answer()
		<-time.After(2 * time.Minute) // of the bubble
		require.False(t, e.Stats().Disk.Hangs)
		require.Equal(t, len(next.Prompt)-2, ask(t, e, next).Usage.Cached)

		// While a write hangs, before and after its limit, all requests are answered.
		disk.stick()
		began = time.Now()
		for i := range 20 {
			ask(t, e, Request{Prompt: prompt(uint64(10+i), 200), MaxTokens: 2, IgnoreEOS: true})
			require.Equal(t, wantOther.ids(), ask(t, e, another).ids())
		}
		require.Less(t, time.Since(began), time.Second)
		require.False(t, e.Stats().Disk.Hangs)
		<-time.After(2 * time.Minute) // of the bubble
		require.True(t, e.Stats().Disk.Hangs)
		require.Equal(t, want.ids(), ask(t, e, next).ids())

		// A stop does not wait for it.
		began = time.Now()
		require.NoError(t, e.Flush(ctx))
		require.NoError(t, e.Close(ctx))
		require.Less(t, time.Since(began), time.Second)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, store.Close(short), context.DeadlineExceeded)
		require.Empty(t, m.Violations())
		disk.answer()
	})
}
