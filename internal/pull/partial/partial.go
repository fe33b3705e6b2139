// Package partial keeps a file that arrives in pieces: NAME.part, beside it
// NAME.part.json with the ranges that are on the disk, so that an interrupted transfer
// can be resumed. Only a complete and correct file gets its name.
//
// Open opens or creates the partial file, Append adds to a range, and Finish gives the
// file its name.
package partial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// MostBytes is the size of the largest file that is fetched; a source that announces more
// is refused.
const MostBytes = 1 << 46

// mostRanges bounds the ranges of a file, because they are counted in memory.
const mostRanges = 1 << 22

// ErrExists is wrapped by the error of Finish if another file got the name meanwhile.
var ErrExists = errors.New("another file has appeared under this name; it was not replaced")

// ErrBusy is returned by Open while another process has the same partial file open.
var ErrBusy = errors.New("another process is fetching it: wait for it or end it")

// Identity says which file a partial file belongs to. A partial file is resumed only if
// its identity is the same.
type Identity struct {
	Size   int64  // bytes
	SHA256 string // in hex; "" if it is not known
	Tag    string // distinguishes versions of a file without SHA-256; "": it cannot be resumed
	Chunk  int64  // bytes of each range but the last
}

// File is a partial file. Any goroutine may call its methods, but only one at a time may
// write to a range.
type File struct {
	path string
	part *os.File

	mu    sync.Mutex
	state state
}

// Open opens the partial file of the future path, and its state. Data that does not
// belong to id is dropped; dropped reports that. ErrBusy means that another process has
// the file. Links are not followed, because their target is not this file's to overwrite.
func Open(path string, id Identity) (f *File, dropped bool, err error) {
	if id.Size < 1 || id.Size > MostBytes || id.Chunk < 1 || (id.Size-1)/id.Chunk >= mostRanges {
		return nil, false, fmt.Errorf("%s: %d bytes in ranges of %d; at most %d bytes and %d ranges are possible", path, id.Size, id.Chunk, int64(MostBytes), mostRanges)
	}
	part, created, err := openPart(path + ".part")
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			if created {
				err = errors.Join(err, os.Remove(path+".part"))
			}
			err = errors.Join(err, part.Close())
		}
	}()
	switch alone, err := lock(part); {
	case err != nil:
		return nil, false, fmt.Errorf("%s: %w", path+".part", err)
	case !alone:
		return nil, false, ErrBusy
	}
	f = &File{path: path, part: part, state: newState(id)}
	info, err := part.Stat()
	if err != nil {
		return nil, false, err
	}
	old, err := readState(f.statePath())
	if err == nil && old.fits(f.state) && info.Size() == id.Size {
		f.state = old
		return f, false, nil
	}
	fresh := errors.Is(err, os.ErrNotExist) && info.Size() == 0
	return f, !fresh, f.Reset()
}

// openPart opens a partial file, which must be a file of its own; created reports that it
// did not exist.
func openPart(path string) (part *os.File, created bool, err error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	part, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		return part, true, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return nil, false, err
	}
	if part, err = os.OpenFile(path, flags, 0); err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) { // the latter on FreeBSD
			err = fmt.Errorf("%s is a symbolic link, which is not followed: remove it", path)
		}
		return nil, false, err
	}
	var info unix.Stat_t
	if err = unix.Fstat(int(part.Fd()), &info); err == nil && (info.Mode&unix.S_IFMT != unix.S_IFREG || info.Nlink > 1) {
		err = fmt.Errorf("%s is a device, a pipe or another name of a file: remove it", path)
	}
	if err != nil {
		return nil, false, errors.Join(err, part.Close())
	}
	return part, false, nil
}

// Lacking returns how many more bytes a file of this size needs on the disk, at least,
// beyond what its partial file has.
func Lacking(path string, size int64) int64 {
	var info unix.Stat_t
	if unix.Lstat(path+".part", &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFREG {
		return size
	}
	return max(0, size-int64(info.Blocks)*512)
}

func (f *File) partPath() string  { return f.path + ".part" }
func (f *File) statePath() string { return f.path + ".part.json" }

// Reset drops all data.
func (f *File) Reset() error {
	f.mu.Lock()
	clear(f.state.Have)
	f.mu.Unlock()
	if err := f.part.Truncate(0); err != nil {
		return err
	}
	if err := f.part.Truncate(f.state.Size); err != nil {
		return err
	}
	return f.Save()
}

// Ranges returns the number of ranges.
func (f *File) Ranges() int { return len(f.state.Have) }

// Range returns where range i begins, and its length, both in bytes.
func (f *File) Range(i int) (offset, length int64) {
	return int64(i) * f.state.Chunk, f.state.length(i)
}

// Have returns how many of the first bytes of range i have arrived.
func (f *File) Have(i int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Have[i]
}

// Done returns how many bytes of the file have arrived.
func (f *File) Done() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.state.Have {
		n += h
	}
	return n
}

// Append writes the next bytes of range i.
func (f *File) Append(i int, p []byte) error {
	offset, length := f.Range(i)
	have := f.Have(i)
	if have+int64(len(p)) > length {
		return fmt.Errorf("%s: %d bytes for the %d that are missing of range %d", f.partPath(), len(p), length-have, i)
	}
	if _, err := f.part.WriteAt(p, offset+have); err != nil {
		return err
	}
	f.mu.Lock()
	f.state.Have[i] += int64(len(p))
	f.mu.Unlock()
	return nil
}

// Drop forgets the data of range i.
func (f *File) Drop(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Have[i] = 0
}

// ReadAt reads data that has arrived.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.part.ReadAt(p, offset) }

// Save records what is on the disk.
func (f *File) Save() error {
	f.mu.Lock()
	now := f.state
	now.Have = append([]int64{}, f.state.Have...)
	f.mu.Unlock()
	// First the bytes, then the record of them.
	if err := f.part.Sync(); err != nil {
		return fmt.Errorf("%s: %w", f.partPath(), err)
	}
	return now.write(f.statePath())
}

// Hash returns the SHA-256 of the file in hex. It calls progress, if not nil, with the
// bytes that it reads.
func (f *File) Hash(ctx context.Context, progress func(n int64)) (string, error) {
	return hash(ctx, io.NewSectionReader(f.part, 0, f.state.Size), progress)
}

// Finish gives the file its name and removes the state. It does not replace a file:
// ErrExists.
func (f *File) Finish() error {
	mine, err := f.part.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(f.partPath()); err != nil || !os.SameFile(mine, there) {
		return errors.Join(fmt.Errorf("%s is no longer the file that was fetched: run the same command again", f.partPath()), err)
	}
	if err := rename(f.partPath(), f.path); err != nil {
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s: %w: move it away and run the same command again", f.path, ErrExists)
		}
		return err
	}
	if err := os.Remove(f.statePath()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.path))
}

// Remove removes the partial file and its state.
func (f *File) Remove() error { return errors.Join(os.Remove(f.statePath()), os.Remove(f.partPath())) }

// Close closes the partial file, which stays.
func (f *File) Close() error { return f.part.Close() }

// rename renames a file unless the new name is taken; os.ErrExist.
func rename(from, to string) error { return renameBy(renameNew, os.Link, from, to) }

func renameBy(once, link func(from, to string) error, from, to string) error {
	err := once(from, to)
	if !unable(err) {
		return err
	}
	// Some file systems, such as NFS, cannot do it in one step: link the second name,
	// then remove the first.
	err = link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	if !unable(err) {
		return err
	}
	// Others, such as exFAT, have no links either: an empty file claims the name and is
	// then replaced.
	claim, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(claim.Close(), os.Rename(from, to))
}

// unable reports whether an error says that a file system lacks an operation.
func unable(err error) bool {
	lacks := []unix.Errno{unix.EINVAL, unix.ENOSYS, unix.ENOTSUP, unix.EOPNOTSUPP, unix.EPERM}
	return slices.ContainsFunc(lacks, func(e unix.Errno) bool { return errors.Is(err, e) })
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Hash returns the SHA-256 of a file on the disk, in hex. It ends early with ctx.
func Hash(ctx context.Context, path string, progress func(n int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return hash(ctx, f, progress)
}

func hash(ctx context.Context, f io.Reader, progress func(n int64)) (string, error) {
	sum := sha256.New()
	buffer := make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := f.Read(buffer)
		sum.Write(buffer[:n])
		if progress != nil {
			progress(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", context.Cause(ctx)
}
