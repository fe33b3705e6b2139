// Package reload keeps values that are read from files current: certificates, keys.
// The files are looked at when a value is used, not more often than an interval, so
// nothing runs in the background and whoever uses the value after a change has the
// new one within the interval.
package reload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringmaster/internal/trust"
)

// MaxFile is the most bytes that a file may have.
const MaxFile = 4 << 20

// Every is how often files are looked at by default.
const Every = time.Second

// Options are where a value comes from.
type Options[T any] struct {
	Paths []string
	// Parse makes the value of the contents of the files, in the order of Paths.
	Parse func(contents [][]byte) (T, error)
	// Reduce makes the value of contents that Parse has refused, or of nil if a path has no
	// regular file any more: what is left of the value before. nil: all of it. It is not
	// called for what cannot be read, since that tells nothing about the contents.
	Reduce func(contents [][]byte) T
	// Owned trusts only files of this process's user or root, with no link of another's on
	// the way to them. What others put there counts as no regular file.
	Owned bool
	Every time.Duration    // how often the files are looked at; 0: Every
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // what became of changes; nil: slog.Default()
}

// Value is what some files hold. Contents are compared, not times, so it matters
// neither how a file was replaced nor how fine its file system's clock is.
type Value[T any] struct {
	o       Options[T]
	current atomic.Pointer[T]
	failed  atomic.Bool

	looking sync.Mutex // held by the one that looks at the files
	next    time.Time  // when to look again
	seen    [][]byte   // the contents last parsed, whether or not that succeeded
	problem string     // last logged
}

// New reads the files for the first time; its errors name the file.
func New[T any](o Options[T]) (*Value[T], error) {
	if o.Every == 0 {
		o.Every = Every
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	v := &Value[T]{o: o, next: o.Now().Add(o.Every)}
	contents, err := v.read()
	if err != nil {
		return nil, err
	}
	first, err := o.Parse(contents)
	if err != nil {
		return nil, err
	}
	v.seen = contents
	v.current.Store(&first)
	return v, nil
}

// Get returns the value. If the files cannot be read or parsed, or belong together
// and only one has been replaced so far, it stays what it was, but for Options.Reduce:
// the log says so once for each problem, and Failed until it is mended.
func (v *Value[T]) Get() T {
	if v.looking.TryLock() { // else another looks: nobody waits for a slow disk
		v.look()
		v.looking.Unlock()
	}
	return *v.current.Load()
}

// Failed reports whether the files held no usable value when last looked at.
func (v *Value[T]) Failed() bool { return v.failed.Load() }

// look reads the files if it is time to.
func (v *Value[T]) look() {
	now := v.o.Now()
	if wait := v.next.Sub(now); wait > 0 && wait <= v.o.Every { // more: the clock was set back
		return
	}
	v.next = now.Add(v.o.Every)
	contents, err := v.read()
	if err != nil {
		v.note(err)
		v.seen = nil // once readable again, they are parsed
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) || errors.Is(err, trust.ErrForeign) {
			v.reduce(nil)
		}
		return
	}
	if equal(contents, v.seen) {
		return
	}
	v.seen = contents
	value, err := v.o.Parse(contents)
	if err != nil {
		v.note(err)
		v.reduce(contents)
		return
	}
	v.current.Store(&value)
	v.failed.Store(false)
	v.problem = ""
	v.o.Log.Info("read again after a change", "files", strings.Join(v.o.Paths, ", "))
}

// reduce stores what Options.Reduce leaves of the value.
func (v *Value[T]) reduce(contents [][]byte) {
	if v.o.Reduce != nil {
		left := v.o.Reduce(contents)
		v.current.Store(&left)
	}
}

// note logs a problem unless it is the last one still.
func (v *Value[T]) note(err error) {
	v.failed.Store(true)
	if text := err.Error(); text != v.problem {
		v.problem = text
		message := "a change of a file is not in force; what was read before is"
		if v.o.Reduce != nil {
			message = "a change of a file is not in force, except for what it removes"
		}
		v.o.Log.Error(message, "error", err)
	}
}

// read returns the contents of the files.
func (v *Value[T]) read() ([][]byte, error) {
	contents := make([][]byte, len(v.o.Paths))
	for i, path := range v.o.Paths {
		var err error
		if contents[i], err = readFile(path, v.o.Owned); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// errNotRegular is wrapped by the error of a path that is a directory, pipe or device.
var errNotRegular = errors.New("expected a regular file")

func readFile(path string, owned bool) ([]byte, error) {
	// Some devices act when they are opened.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, err
	}
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if owned {
		if err := trust.File(f); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s has more than %d bytes: is it the right file?", path, MaxFile)
	}
	return data, nil
}

// openRegular opens a path, which may have become another file since it was looked at:
// opening a pipe would wait for a writer, and Get would return the value of now for ever.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func checkRegular(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a %s; %w", path, info.Mode().Type(), errNotRegular)
	}
	return nil
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
