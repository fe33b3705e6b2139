package diskcache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ringmaster/internal/trust"
)

// Files is what a Store does with its files; tests have disks that fail or hang.
type Files interface {
	// Create makes a new file that only its owner can read. It replaces one that a crash
	// has left.
	Create(path string) (File, error)
	Open(path string) (Source, error)
	Rename(from, to string) error
	Remove(path string) error
	// Touch sets the modification time of a file.
	Touch(path string, at time.Time) error
	// SyncDir makes renames in a directory durable.
	SyncDir(dir string) error
}

// File is a file to write.
type File interface {
	io.WriteCloser
	Sync() error
}

// Source is a file to read.
type Source interface {
	io.ReadCloser
	Stat() (os.FileInfo, error)
}

// Trusted returns an error unless an open file is a regular one of this process's user or
// of root, and no other user may write to it, because such a user could choose its
// contents.
func Trusted(path string, f Source) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return trusted(path, info)
}

func trusted(path string, info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a %s, not a file", path, info.Mode().Type())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: other users may write to it (mode %04o)", path, info.Mode().Perm())
	}
	return trust.Owner(path, info)
}

// OS is the file system of the operating system.
type OS struct{}

// Create implements Files.
func (OS) Create(path string) (File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements Files. It does not follow links and does not wait for the writer of a
// pipe.
func (OS) Open(path string) (Source, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Rename implements Files.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Files.
func (OS) Remove(path string) error { return os.Remove(path) }

// Touch implements Files.
func (OS) Touch(path string, at time.Time) error { return os.Chtimes(path, at, at) }

// SyncDir implements Files.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
