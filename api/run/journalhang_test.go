package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/diskcache"
	"ringmaster/internal/testenv"
)

// badDisk is a disk on which one operation fails, or hangs until the test releases it.
type badDisk struct {
	diskcache.OS
	mu   sync.Mutex
	name string        // the operation; "": none
	err  error         // of the operation; nil: it hangs
	free chan struct{} // closed to release it
}

func (d *badDisk) set(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.name, d.err, d.free = name, err, make(chan struct{})
}

func (d *badDisk) do(name string) error {
	d.mu.Lock()
	hit, err, free := name == d.name, d.err, d.free
	d.mu.Unlock()
	if hit && err == nil {
		<-free
	}
	if hit {
		return err
	}
	return nil
}

func (d *badDisk) Create(path string) (diskcache.File, error) {
	if err := d.do("create"); err != nil {
		return nil, err
	}
	f, err := d.OS.Create(path)
	if err != nil {
		return nil, err
	}
	return badFile{f, d}, nil
}

func (d *badDisk) Open(path string) (diskcache.Source, error) {
	if err := d.do("open"); err != nil {
		return nil, err
	}
	return d.OS.Open(path)
}

func (d *badDisk) Rename(from, to string) error {
	if err := d.do("rename"); err != nil {
		return err
	}
	return d.OS.Rename(from, to)
}

type badFile struct {
	diskcache.File
	d *badDisk
}

// Write writes half of the bytes if it fails, as a full disk does.
func (f badFile) Write(b []byte) (int, error) {
	if err := f.d.do("write"); err != nil {
		n, other := f.File.Write(b[:len(b)/2])
		return n, errors.Join(err, other)
	}
	return f.File.Write(b)
}

func (f badFile) Sync() error { return f.d.do("sync") }

// recorded is what was logged.
type recorded struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorded) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *recorded) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestABadDisk: whatever operation of the file hangs or fails while an answer is appended
// or the file is rewritten, no answer waits, even if there are more than the queue holds;
// the failure is logged; and once the disk works all answers are in the file, whether
// more answers come or not.
func TestABadDisk(t *testing.T) {
	const answers = 3 * journalQueue
	full := errors.New("no space left on device")
	for _, name := range []string{"write", "create", "sync", "rename"} {
		for _, err := range []error{nil, full} {
			for _, again := range []bool{false, true} { // another answer comes afterwards
				t.Run(fmt.Sprint(name, " ", err, " ", again), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						path, d, log := filepath.Join(t.TempDir(), "replays"), &badDisk{}, &recorded{}
						limit := int64(1 << 20)
						if name != "write" { // the operations of a rewrite
							limit = 600 << 10
						}
						r := NewReplays(limit)
						require.NoError(t, r.keep(path, "m", 1000, slog.New(slog.NewTextHandler(log, nil)), d))
						total := 0
						remember := func(n int) {
							began := time.Now()
							for range n {
								r.remember(example(total))
								total++
							}
							require.Zero(t, time.Since(began))
							for i := range total {
								tokens, _ := r.Find("", message(example(i)))
								require.NotNil(t, tokens)
							}
						}
						remember(5)
						synctest.Wait()
						d.set(name, err)
						if name != "write" {
							r.journal.missed.Store(true) // the next answer rewrites the file
						}
						remember(answers)
						synctest.Wait()
						if err == nil {
							require.Empty(t, log.String())
							<-time.After(journalLimit - 1)
							require.Empty(t, log.String())
							<-time.After(1)
							synctest.Wait()
							require.Contains(t, log.String(), "level=ERROR")
							require.Contains(t, log.String(), "does not respond")
							remember(answers)
						} else {
							require.Contains(t, log.String(), full.Error())
						}
						<-time.After(3 * journalRetry) // a failing disk is tried rarely, and logged rarely
						synctest.Wait()
						require.LessOrEqual(t, bytes.Count(log.text.Bytes(), []byte("\n")), 4)
						free := d.free
						d.set("", nil)
						close(free)
						synctest.Wait()
						if again {
							remember(1)
						}
						<-time.After(journalRetry)
						synctest.Wait()
						require.Contains(t, log.String(), "kept on disk again")
						if again {
							remember(1)
						}
						closed(t, r)
						next, said := kept(t, path, "m", 4<<20)
						require.Empty(t, said.String())
						for i := range total {
							tokens, _ := next.Find("", message(example(i)))
							require.NotNil(t, tokens, "%d of %d", i, total)
						}
						closed(t, next)
					})
				})
			}
		}
	}
}

// TestAJournalThatHangsAtTheEnds: neither the start of a server nor its end waits longer
// than its limit.
func TestAJournalThatHangsAtTheEnds(t *testing.T) {
	for _, name := range []string{"open", "create", "write", "sync", "rename"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path, d := filepath.Join(t.TempDir(), "replays"), &badDisk{}
				d.set(name, nil)
				began := time.Now()
				err := NewReplays(1<<20).keep(path, "m", 1000, slog.New(slog.DiscardHandler), d)
				require.ErrorIs(t, err, diskcache.ErrHangs)
				require.ErrorContains(t, err, path)
				require.Equal(t, journalLimit, time.Since(began))
				close(d.free)
				synctest.Wait()
				d.set("", nil)
				r := NewReplays(1 << 20)
				require.NoError(t, r.keep(path, "m", 1000, slog.New(slog.DiscardHandler), d))
				d.set("write", nil)
				r.remember(example(1))
				ctx := testenv.Within(t, 5*time.Second)
				began = time.Now()
				require.ErrorIs(t, r.Close(ctx), context.DeadlineExceeded)
				require.Equal(t, 5*time.Second, time.Since(began))
				close(d.free)
				synctest.Wait()
			})
		})
	}
}

// Only the scope that asked for an answer finds it, also after a restart.
func TestReplaysHaveAScope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replays")
	r, _ := kept(t, path, "m", 1<<20)
	p := example(0)
	p.scope = "one\xff"
	r.remember(p)
	for range 2 {
		for scope, found := range map[string]bool{"one\xff": true, "": false, "two": false, "one": false} {
			tokens, _ := r.Find(scope, message(p))
			require.Equal(t, found, tokens != nil, scope)
		}
		closed(t, r)
		r, _ = kept(t, path, "m", 1<<20)
	}
	closed(t, r)
}
