// Package partial keeps a file that arrives in pieces: NAME.part, beside it
// NAME.part.json with the ranges that are on the disk, so that whoever fetches it
// goes on where it was. Only a file that is whole and right gets its name.
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
	"sync"
)

// ErrBusy is returned by Open while another process has the same partial file open.
var ErrBusy = errors.New("another process is fetching it: wait for it or end it")

// Identity says which file a partial file is of. A partial file is gone on with only
// if its identity is the same.
type Identity struct {
	Size   int64  // bytes
	SHA256 string // in hex; "" if it is not known
	Tag    string // tells versions of a file without SHA-256 apart; "": it cannot be gone on with
	Chunk  int64  // bytes of each range but the last
}

// File is a partial file. Any goroutine may call its methods, but one at a time writes
// to a range.
type File struct {
	path string
	part *os.File

	mu    sync.Mutex
	state state
}

// Open opens the partial file of what will be path, and its state. What does not
// belong to id is dropped; dropped then is true. ErrBusy means that another process
// has it.
func Open(path string, id Identity) (f *File, dropped bool, err error) {
	part, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
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

// Path is the name that the file will have.
func (f *File) Path() string { return f.path }

func (f *File) partPath() string  { return f.path + ".part" }
func (f *File) statePath() string { return f.path + ".part.json" }

// Reset drops all that is there.
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

// Ranges is the number of ranges.
func (f *File) Ranges() int { return len(f.state.Have) }

// Range is where range i begins, and its length, both in bytes.
func (f *File) Range(i int) (offset, length int64) {
	return int64(i) * f.state.Chunk, f.state.length(i)
}

// Have is how many of the first bytes of range i are there.
func (f *File) Have(i int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Have[i]
}

// Done is how many bytes of the file are there.
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

// Drop forgets what is there of range i.
func (f *File) Drop(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Have[i] = 0
}

// ReadAt reads of what is there.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.part.ReadAt(p, offset) }

// Save writes the state of what is on the disk.
func (f *File) Save() error {
	f.mu.Lock()
	now := f.state
	now.Have = append([]int64{}, f.state.Have...)
	f.mu.Unlock()
	// First the bytes, then the word that they are there.
	if err := f.part.Sync(); err != nil {
		return fmt.Errorf("%s: %w", f.partPath(), err)
	}
	return now.write(f.statePath())
}

// Hash is the SHA-256 of the file in hex. progress, if not nil, is told of the bytes
// that were read.
func (f *File) Hash(ctx context.Context, progress func(n int64)) (string, error) {
	return Hash(ctx, f.partPath(), progress)
}

// Finish gives the file its name and removes the state.
func (f *File) Finish() error {
	if err := os.Rename(f.partPath(), f.path); err != nil {
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

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Hash is the SHA-256 of a file on the disk, in hex. It ends early with ctx.
func Hash(ctx context.Context, path string, progress func(n int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
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
