package diskcache

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model/snapshot"
)

// hangingDisk is a disk on which one operation hangs, the nth of its name from hang on,
// until answer.
type hangingDisk struct {
	OS
	mu   sync.Mutex
	name string
	n    int
	free chan struct{}
}

func (d *hangingDisk) hang(name string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.name, d.n, d.free = name, n, make(chan struct{})
}

func (d *hangingDisk) answer() { close(d.free) }

func (d *hangingDisk) do(name string) {
	d.mu.Lock()
	var free chan struct{}
	if name == d.name {
		if d.n--; d.n == 0 {
			free = d.free
		}
	}
	d.mu.Unlock()
	if free != nil {
		<-free
	}
}

func (d *hangingDisk) Create(path string) (File, error) {
	d.do("create")
	f, err := d.OS.Create(path)
	return hangingFile{f, d}, err
}

func (d *hangingDisk) Open(path string) (Source, error) {
	d.do("open")
	f, err := d.OS.Open(path)
	return hangingSource{f, d}, err
}

func (d *hangingDisk) Rename(from, to string) error {
	d.do("rename")
	return d.OS.Rename(from, to)
}

func (d *hangingDisk) Remove(path string) error {
	d.do("remove")
	return d.OS.Remove(path)
}

func (d *hangingDisk) Touch(path string, at time.Time) error {
	d.do("touch")
	return d.OS.Touch(path, at)
}

func (d *hangingDisk) SyncDir(dir string) error {
	d.do("sync of the directory")
	return nil
}

type hangingFile struct {
	File
	d *hangingDisk
}

func (f hangingFile) Write(b []byte) (int, error) {
	f.d.do("write")
	return f.File.Write(b)
}

func (f hangingFile) Sync() error {
	f.d.do("sync")
	return nil // true syncs are slow
}

type hangingSource struct {
	Source
	d *hangingDisk
}

func (f hangingSource) Read(b []byte) (int, error) {
	f.d.do("read")
	return f.Source.Read(b)
}

// onHangingDisk runs a test in a bubble of time, on a Store with one snapshot, of ids(1, 300).
func onHangingDisk(t *testing.T, f func(t *testing.T, d *hangingDisk, b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangingDisk{}
		b, err := openOn(t, filepath.Join(t.TempDir(), "cache"), 12<<20, d)
		require.NoError(t, err)
		require.True(t, b.save("", ids(1, 300), 5<<20, Worth{}))
		f(t, d, b)
		require.NoError(t, b.Close(t.Context()))
	})
}

// passes lets time pass.
func passes(d time.Duration) {
	<-time.After(d) // of the bubble
	synctest.Wait()
}

// TestAHangingWrite: whatever operation of a save hangs, no call waits for it. Past its
// limit the disk is not used any more, which is logged. When the disk responds, no trace
// of the snapshot remains, and after a while the disk is used again.
func TestAHangingWrite(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
	}{{"create", 1}, {"write", 1}, {"write", 2}, {"write", 5}, {"sync", 1}, {"rename", 1}, {"sync of the directory", 1}, {"remove", 1}} {
		t.Run(fmt.Sprint(c.name, " ", c.n), func(t *testing.T) {
			onHangingDisk(t, func(t *testing.T, d *hangingDisk, b *bed) {
				if c.name == "remove" { // the budget holds two
					require.True(t, b.save("", ids(2, 300), 5<<20, Worth{Awaited: true}))
				}
				before := b.Stats()
				woken := make(chan struct{}, 100)
				b.Notify(func() { woken <- struct{}{} })
				d.hang(c.name, c.n)
				w := b.Save(Sequence{Tokens: ids(3, 300), Peak: 300, Worth: Worth{Awaited: true}})
				require.NotNil(t, w)
				rest := state(t, ids(3, 300), 5<<20)
				finished := false
				for {
					synctest.Wait()
					if w.Ended() || !w.Ready() {
						break
					}
					if len(rest) == 0 {
						w.Finish()
						finished = true
						break
					}
					k := min(len(rest), snapshot.MaxPiece)
					w.Put(rest[:k])
					rest = rest[k:]
				}
				synctest.Wait()
				require.False(t, w.Ended())
				require.False(t, b.Stats().Hangs)

				// Everything else continues meanwhile.
				e, n := b.Find("", ids(2, 300))
				if c.name != "remove" {
					e, n = b.Find("", ids(1, 300))
				}
				require.Equal(t, 299, n)
				l := b.Load(e)
				synctest.Wait()
				_, ok, err := l.Next()
				require.NoError(t, err)
				require.True(t, ok)
				b.Used(e, 1)
				b.Version()
				other := b.Save(Sequence{Tokens: ids(4, 300), Peak: 300})
				require.NotNil(t, other)
				require.False(t, other.Ready(), "those that wait take no memory")
				for len(woken) > 0 {
					<-woken
				}

				passes(writeLimit)
				require.NotEmpty(t, woken)
				st := b.Stats()
				require.True(t, st.Hangs)
				require.Equal(t, before.Errors+1, st.Errors)
				require.Contains(t, b.log.String(), "does not respond")
				require.True(t, w.Ended() && other.Ended())
				if !finished {
					w.Abort()
				}
				other.Abort()
				require.Nil(t, b.Save(Sequence{Tokens: ids(5, 300), Peak: 300}))
				require.Zero(t, b.finds("", ids(1, 300)))
				for err = nil; err == nil; { // pieces that were read already are returned
					_, _, err = l.Next()
				}
				require.ErrorIs(t, err, ErrHangs)
				l.Close()
				b.Refuse(e, err)
				_, _, err = b.Load(e).Next()
				require.ErrorIs(t, err, ErrHangs)

				d.answer()
				synctest.Wait()
				st = b.Stats()
				require.False(t, st.Hangs)
				require.Equal(t, before.Saved, st.Saved)
				require.Equal(t, before.Errors+1, st.Errors)
				require.Contains(t, b.log.String(), "responds again")
				list, err := filepath.Glob(filepath.Join(b.dir, "*"))
				require.NoError(t, err)
				require.Len(t, list, st.Entries+1, "nothing but what is known, and the lock")
				require.LessOrEqual(t, st.Bytes, st.Budget)
				_, err = b.load(e)
				require.NoError(t, err)
				require.False(t, b.save("", ids(3, 300), 5<<20, Worth{}), "not at once")
				b.now = b.now.Add(retryAfter)
				require.True(t, b.save("", ids(3, 300), 5<<20, Worth{Awaited: true}))
				require.Equal(t, 299, b.finds("", ids(3, 300)))
			})
		})
	}
}

// TestAHangingRead: a load on a disk that hangs fails at its limit; one on a slow disk
// does not, however long it takes in all.
func TestAHangingRead(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
	}{{"open", 1}, {"read", 1}, {"read", 2}, {"read", 5}} {
		t.Run(fmt.Sprint(c.name, " ", c.n), func(t *testing.T) {
			onHangingDisk(t, func(t *testing.T, d *hangingDisk, b *bed) {
				e, _ := b.Find("", ids(1, 300))
				d.hang(c.name, c.n)
				l := b.Load(e)
				read := func() (n int, err error) {
					for {
						synctest.Wait()
						piece, ok, err := l.Next()
						if !ok {
							return n, err
						}
						n += len(piece)
					}
				}
				_, err := read()
				require.NoError(t, err)
				passes(readLimit - time.Second)
				_, err = read()
				require.NoError(t, err)
				passes(time.Second)
				_, err = read()
				require.ErrorIs(t, err, ErrHangs)
				l.Close()
				b.Refuse(e, err)
				require.True(t, b.Stats().Hangs)
				require.EqualValues(t, 1, b.Stats().Errors)
				require.Nil(t, b.Save(Sequence{Tokens: ids(5, 300), Peak: 300}))
				d.answer()
				synctest.Wait()
				got, err := b.load(e)
				require.NoError(t, err)
				require.Equal(t, state(t, ids(1, 300), 5<<20), got)
			})
		})
	}
	t.Run("slow", func(t *testing.T) {
		onHangingDisk(t, func(t *testing.T, d *hangingDisk, b *bed) {
			e, _ := b.Find("", ids(1, 300))
			d.hang("read", 1)
			l := b.Load(e)
			var got []byte
			for {
				passes(readLimit / 3) // a piece may take several
				select {
				case <-d.free:
				default:
					free := d.free
					d.hang("read", 1)
					close(free)
				}
				synctest.Wait()
				piece, ok, err := l.Next()
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
				if ok {
					got = append(got, piece...)
				}
			}
			l.Close()
			require.Equal(t, state(t, ids(1, 300), 5<<20), got)
			require.Zero(t, b.Stats().Errors)
		})
	})
}

// TestRemovingAndTouchingHang: the caller does neither, and a snapshot that is removed
// and saved again meanwhile is not lost.
func TestRemovingAndTouchingHang(t *testing.T) {
	onHangingDisk(t, func(t *testing.T, d *hangingDisk, b *bed) {
		e, _ := b.Find("", ids(1, 300))
		d.hang("touch", 1)
		b.Used(e, 299)
		synctest.Wait()
		b.Refuse(e, ErrMismatch) // queued behind the hanging operation
		require.Zero(t, b.Stats().Entries)
		require.FileExists(t, b.path(e.name, final))
		w := b.Save(Sequence{Tokens: ids(1, 300), Peak: 300})
		d.answer()
		synctest.Wait()
		require.NoFileExists(t, b.path(e.name, final))
		w.Put(state(t, ids(1, 300), 5))
		w.Finish()
		synctest.Wait()
		require.Equal(t, 299, b.finds("", ids(1, 300)))
		require.FileExists(t, b.path(e.name, final))
		require.Zero(t, b.Stats().Errors)
	})
}

// TestCloseWhileTheDiskHangs: no other Store gets the directory before the last operation
// has ended.
func TestCloseWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangingDisk{}
		dir := filepath.Join(t.TempDir(), "cache")
		b, err := openOn(t, dir, 1<<30, d)
		require.NoError(t, err)
		d.hang("rename", 1)
		w := b.Save(Sequence{Tokens: ids(1, 300), Peak: 300})
		w.Put(state(t, ids(1, 300), 5))
		w.Finish()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = b.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stays locked")
		_, err = tryOpen(t, dir, 1<<30)
		require.ErrorIs(t, err, ErrLocked)
		require.Nil(t, b.Save(Sequence{Tokens: ids(2, 300), Peak: 300}))
		d.answer()
		synctest.Wait()
		open(t, dir, 1<<30).close()
	})
}

// TestOpeningHangs: a server waits for it with a limit.
func TestOpeningHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangingDisk{}
		dir := filepath.Join(t.TempDir(), "cache")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat("a", nameLength)+final), nil, 0o600))
		d.hang("open", 1)
		_, err := openOn(t, dir, 1<<30, d)
		require.ErrorIs(t, err, ErrHangs)
		require.ErrorContains(t, err, dir)
		d.answer()
		synctest.Wait()
		open(t, dir, 1<<30).close()
	})
}
