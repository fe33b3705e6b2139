package diskcache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/trust"
)

// brokenDisk is a disk on which nothing can be written.
type brokenDisk struct {
	OS
	err error
}

func (d *brokenDisk) Create(path string) (File, error) {
	f, err := d.OS.Create(path)
	return brokenFile{f, d}, err
}

type brokenFile struct {
	File
	d *brokenDisk
}

func (f brokenFile) Write(b []byte) (int, error) {
	if f.d.err != nil {
		return 0, &os.PathError{Op: "write", Path: "f", Err: f.d.err}
	}
	return f.File.Write(b)
}

// TestFullAtTheStart: a disk that cannot be written when a Store is opened counts as
// failed: its snapshots are found and read, and it is written again later.
func TestFullAtTheStart(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		dir := filepath.Join(t.TempDir(), "cache")
		b := open(t, dir, 1<<20)
		old, long := ids(1, 300), ids(2, 300)
		require.True(t, b.save("", old, 5, Worth{}))
		b.close()

		disk := &brokenDisk{err: full}
		b, err := openOn(t, dir, 1<<20, disk)
		require.NoError(t, err)
		require.Contains(t, b.log.String(), full.Error())
		require.EqualValues(t, 1, b.Stats().Errors)
		e, n := b.Find("", append(old, 1))
		require.Equal(t, 300, n)
		_, err = b.load(e)
		require.NoError(t, err)
		require.False(t, b.save("", long, 5, Worth{}), "nothing is saved for a while")
		disk.err = nil
		b.now = b.now.Add(retryAfter + time.Second)
		require.True(t, b.save("", long, 5, Worth{}))
		require.Equal(t, 299, b.finds("", long))
		b.close()
		left, err := filepath.Glob(filepath.Join(dir, "*"+partial))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestDiskFailed: which errors are the disk's, and which the caller's.
func TestDiskFailed(t *testing.T) {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, ErrHangs} {
		require.True(t, DiskFailed(errors.Join(errors.New("x"), &os.PathError{Err: e})), e)
	}
	for _, e := range []error{nil, ErrLocked, ErrExposed, os.ErrPermission, os.ErrNotExist, syscall.ENOTDIR, trust.ErrForeign} {
		require.False(t, DiskFailed(e), e)
	}
}

// withSnapshot opens a cache and saves a snapshot there.
func withSnapshot(t *testing.T, dir string) (b *bed, e *Entry, path string) {
	t.Helper()
	b = open(t, dir, 1<<20)
	require.True(t, b.save("", ids(1, 300), 5, Worth{}))
	e, _ = b.Find("", ids(1, 300))
	return b, e, b.path(e.name, final)
}

// distrusts checks that a snapshot that was changed is refused, because of what text
// says: while the server runs, and by the next one, which removes it.
func (b *bed) distrusts(dir string, e *Entry, text string) error {
	b.t.Helper()
	_, err := b.load(e)
	require.ErrorContains(b.t, err, text)
	b.close()
	next := open(b.t, dir, 1<<20)
	require.Zero(b.t, next.Stats().Entries)
	require.Contains(b.t, next.log.String(), text)
	next.close()
	require.NoFileExists(b.t, b.path(e.name, final))
	return err
}

// TestLinksInACache: neither the directory nor a file in it may be a link, and a pipe
// blocks nothing.
func TestLinksInACache(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "cache")
	b, e, path := withSnapshot(t, dir)
	require.NoError(t, os.Rename(path, filepath.Join(base, "elsewhere")))
	require.NoError(t, os.Symlink(filepath.Join(base, "elsewhere"), path))
	_, err := b.load(e)
	require.ErrorIs(t, err, syscall.ELOOP, "swapped while the server runs")
	b.close()
	b = open(t, dir, 1<<20)
	require.Zero(t, b.Stats().Entries)
	b.close()
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	b = open(t, dir, 1<<20)
	require.Zero(t, b.Stats().Entries)
	_, err = b.load(e) // swapped while the server runs
	require.ErrorContains(t, err, "not a file")
	b.close()

	lock := filepath.Join(dir, "lock")
	for what, make := range map[string]func() error{
		"link": func() error { return os.Symlink(filepath.Join(base, "elsewhere"), lock) },
		"pipe": func() error { return syscall.Mkfifo(lock, 0o600) },
	} {
		require.NoError(t, os.Remove(lock))
		require.NoError(t, make())
		_, err = tryOpen(t, dir, 1<<20)
		require.Error(t, err, what)
		require.False(t, DiskFailed(err), what)
	}
	require.NoError(t, os.Remove(lock))
	require.NoError(t, os.Symlink(dir, filepath.Join(base, "link")))
	_, err = tryOpen(t, filepath.Join(base, "link"), 1<<20)
	require.ErrorContains(t, err, "symbolic link")
}

// TestWritableSnapshots: a snapshot that other users may write to is not used, also if it
// becomes so while the server runs.
func TestWritableSnapshots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b, e, path := withSnapshot(t, dir)
	require.NoError(t, os.Chmod(path, 0o620))
	b.distrusts(dir, e, "other users may write to it")
}

// TestForeignCache: a directory or a snapshot of another user is not used.
func TestForeignCache(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make files that belong to root")
	}
	dir := filepath.Join(t.TempDir(), "cache")
	b, e, path := withSnapshot(t, dir)
	require.NoError(t, os.Chown(path, 65534, 65534))
	require.ErrorIs(t, b.distrusts(dir, e, "belongs to user 65534"), trust.ErrForeign)

	require.NoError(t, os.Chown(filepath.Join(dir, "lock"), 65534, -1))
	_, err := tryOpen(t, dir, 1<<20)
	require.ErrorIs(t, err, trust.ErrForeign)
	require.NoError(t, os.Chown(filepath.Join(dir, "lock"), 0, -1))
	require.NoError(t, os.Chown(dir, 65534, -1))
	_, err = tryOpen(t, dir, 1<<20)
	require.ErrorIs(t, err, trust.ErrForeign)
	require.False(t, DiskFailed(err))
	require.True(t, strings.Contains(err.Error(), "chown"), err)
}
