// Package reload keeps values that are read from files current, such as certificates and
// keys: New reads the files, and Value.Get returns the current value. Get checks the
// files, but not more often than an interval, so that nothing runs in the background and
// a caller has a changed value within the interval.
package reload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringmaster/internal/trust"
)

// MaxFile is the most bytes that a file may have.
const MaxFile = 4 << 20

// Every is the default interval between two checks of the files.
const Every = time.Second

// Options say where a value comes from.
type Options[T any] struct {
	Paths []string
	// Parse makes the value from the contents of the files, in the order of Paths.
	Parse func(contents [][]byte) (T, error)
	// Reduce returns what is left of the previous value after Parse has refused contents,
	// or for nil if a path has no regular file any more. nil: all of it. It is not called
	// for files that cannot be read, since that says nothing about the contents.
	Reduce func(contents [][]byte) T
	// Owned trusts only files of this process's user or root, without a link of another
	// user on the way to them. Other files count as not regular.
	Owned bool
	Every time.Duration    // interval of the checks; 0: Every
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // results of changes; nil: slog.Default()
}

// Value is a value read from files. It compares contents, not times, so it does not
// matter how a file was replaced or how fine its file system's clock is.
type Value[T any] struct {
	o       Options[T]
	current atomic.Pointer[T]
	failed  atomic.Bool

	looking sync.Mutex // held by the caller that checks the files
	next    time.Time  // time of the next check
	seen    [][]byte   // the contents last parsed, whether or not that succeeded
	problem string     // last logged
}

// New reads the files for the first time; its errors name the file.
func New[T any](o Options[T]) (*Value[T], error) {
	o.Every = cmp.Or(o.Every, Every)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.Default())
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

// Get returns the value. It stays the same while the files cannot be read or parsed, or
// belong together and only one has been replaced so far, except for what Options.Reduce
// removes. The log says so once for each problem, and Failed does until it is fixed.
func (v *Value[T]) Get() T {
	if v.looking.TryLock() { // otherwise another caller checks, and this one does not wait for a slow disk
		v.look()
		v.looking.Unlock()
	}
	return *v.current.Load()
}

// Failed reports whether the files held no usable value at the last check.
func (v *Value[T]) Failed() bool { return v.failed.Load() }

// look reads the files if the interval has passed.
func (v *Value[T]) look() {
	now := v.o.Now()
	if wait := v.next.Sub(now); wait > 0 && wait <= v.o.Every { // more: the clock was set back
		return
	}
	v.next = now.Add(v.o.Every)
	contents, err := v.read()
	if err != nil {
		v.note(err)
		v.seen = nil // once they are readable again, they are parsed
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) || errors.Is(err, trust.ErrForeign) {
			v.reduce(nil)
		}
		return
	}
	if slices.EqualFunc(contents, v.seen, bytes.Equal) {
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

// note logs a problem unless it was the last one logged.
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
	// Some devices act when they are opened, so the type is checked first.
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

// openRegular opens a path without blocking, because it may have become another file
// since the check: opening a pipe would wait for a writer, and Get would return the old
// value forever.
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
