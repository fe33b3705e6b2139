// Package diskcache keeps snapshots of sequences as files within a number of bytes, and
// finds the one that a prompt continues. It knows ids and bytes. The engine decides which
// sequence is worth a snapshot and when a model is free to make or to take one. No call
// waits for the disk except Open and Close.
//
// # Files
//
// A directory belongs to one Store at a time, by a lock on its file "lock". A snapshot
// is a file NAME.snapshot, readable by its owner only. The directory and all files must
// belong to this process's user or to root, and no links are followed, because whoever can
// write a snapshot decides what the model remembers. NAME is a hash of what the snapshot
// belongs to: model, scope and tokens. The file begins with a header of 4 KiB:
//
//	8 bytes  "RMCACHE2", the format and its version
//	u32      length of the JSON, little-endian
//	JSON     what the snapshot belongs to (form)
//	u32      CRC-32C of the JSON, and zeros
//
// The snapshot follows as package snapshot writes it. If it continues the snapshot of
// another file, its parent, the header names that, and a file without its parent is
// removed. It is written as NAME.partial,
// synced and renamed, so that a file with the final name is complete. Scopes are hashed
// wherever they appear, because they come from API keys.
//
// A file that cannot be read any more is named in the log and removed. A file of another
// model stays until its bytes are needed.
package diskcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ringmaster/internal/trust"
	"ringmaster/model/snapshot"
)

// Options of a Store.
type Options struct {
	Budget int64 // limit of the bytes of all snapshots

	Logger *slog.Logger     // default slog.Default
	Clock  func() time.Time // default time.Now
	Files  Files            // default OS
}

// Errors of Open.
var (
	// ErrLocked: another server uses the directory.
	ErrLocked = errors.New("another server uses the directory")
	// ErrExposed: other users may write to the directory.
	ErrExposed = errors.New("other users may write to the directory, so its contents cannot be trusted; run chmod 700")
)

// DiskFailed reports whether an error of Open is the disk's (full, broken or not
// responding), which may pass. Other errors are mistakes in the call.
func DiskFailed(err error) bool {
	for _, e := range []error{ErrHangs, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.ENODEV, unix.ENXIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ETIMEDOUT, unix.ENOTCONN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// MinTokens is the length of the shortest sequence that is kept, because a shorter one
// saves too little to be worth a file.
const MinTokens = 128

// retryAfter is how long nothing is saved after the disk has failed.
const retryAfter = time.Minute

// Store holds the snapshots in a directory. Its methods may be called by any goroutine.
type Store struct {
	dir  string
	o    Options
	lock *os.File

	ctx  context.Context // ends when Close stops waiting
	stop context.CancelFunc
	wg   sync.WaitGroup // work, and the read of each Loader

	mu      sync.Mutex // not held during an operation of the disk
	closing bool
	hanging int  // operations that have passed their limit
	working bool // work runs; the following fields say what it does
	removed []string
	touched map[string]time.Time
	savers  []*Saver
	wake    func()
	model   string // set by Use
	rewind  int
	replay  int
	entries map[string]*Entry // by name; including those of other models
	bytes   int64             // of entries, and of snapshots that are being written
	version uint64            // changes whenever the set of entries does
	failed  time.Time         // time of the disk's last failure
	counts  Stats
	large   bool // the log has said that snapshots exceed the budget
}

// Entry is a snapshot.
type Entry struct {
	form
	name       string
	parent     *Entry    // that it continues; nil: it is whole
	children   int       // entries that continue it, also one that is being written
	size       int64     // of the file
	used       time.Time // last time
	superseded bool      // a longer snapshot of the conversation exists
}

// Length returns the committed tokens of the sequence.
func (e *Entry) Length() int { return e.form.Length }

// Peak returns the greatest length that the sequence had.
func (e *Entry) Peak() int { return e.form.Peak }

// Stats are the numbers of a Store; totals count from Open.
type Stats struct {
	Entries       int
	Bytes, Budget int64

	Saved, SavedBytes uint64 // files written
	Hits, HitTokens   uint64 // snapshots restored, and the prompt tokens that did not run because of them
	Evicted           uint64 // to make room for others
	Refused           uint64 // damaged or foreign files, which were removed
	Errors            uint64 // failures of the disk
	Hangs             bool   // the disk does not respond: nothing is saved or found
}

// Open opens a directory, and makes it if it does not exist.
func Open(dir string, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Budget < 1 {
		return nil, fmt.Errorf("cache on disk: the budget of %d bytes is not positive", o.Budget)
	}
	if o.Files == nil {
		o.Files = OS{}
	}
	hangs := make(chan struct{}, 1)
	s := &Store{dir: dir, o: o, entries: map[string]*Entry{}, touched: map[string]time.Time{}, wake: func() {
		select {
		case hangs <- struct{}{}:
		default:
		}
	}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	opened := make(chan error)
	go func() {
		err := s.open()
		select {
		case opened <- err:
		case <-s.ctx.Done(): // it took too long
			if err == nil {
				_ = s.lock.Close()
			}
		}
	}()
	var err error
	select {
	case err = <-opened:
	case <-hangs:
		err = ErrHangs
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("cache on disk: %s: %w", dir, err)
	}
	s.Notify(func() {})
	return s, nil
}

// open does the disk operations of Open.
func (s *Store) open() error {
	err := s.do(writeLimit, "opening "+s.dir, func() error {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return err
		}
		info, err := os.Lstat(s.dir)
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return errors.New("it is a symbolic link; name the directory that it leads to")
		}
		if !info.IsDir() {
			return errors.New("it is not a directory")
		}
		if err := trust.Owner("it", info); err != nil {
			return err
		}
		if info.Mode().Perm()&0o022 != 0 {
			return ErrExposed
		}
		path := filepath.Join(s.dir, "lock")
		if s.lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600); err != nil {
			return err
		}
		return Trusted(path, s.lock)
	})
	if err == nil {
		err = s.do(writeLimit, "locking "+s.dir, func() error { return lock(s.lock) })
	}
	if err == nil {
		err = s.scan()
	}
	if err != nil && s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Use sets which snapshots are saved and found from now on. model names everything that
// their bits depend on (the file with its weights, the kernels, the build); snapshots
// with another name are not found. rewind and replay are those of model.Info.
func (s *Store) Use(model string, rewind, replay int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model, s.rewind, s.replay = model, rewind, replay
	s.version++
}

// Notify sets the function that any goroutine calls when a Saver or a Loader can
// continue.
func (s *Store) Notify(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}

func (s *Store) notify() {
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	wake()
}

// Version changes whenever Find could find something else.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// The value of a snapshot is the tokens that it saves, times how likely they are asked
// for again, divided by its bytes.
const (
	fading           = 24 * time.Hour // the likelihood falls as 1/(1 + age/fading)
	awaitedWeight    = 8              // as in the engine's prefix cache
	hitWeight        = 2
	markedWeight     = 2
	supersededWeight = 1.0 / 8
)

// value returns the value of an entry beside that of its parent. Only comparisons of values
// are meaningful.
func (e *Entry) value(now time.Time) float64 {
	v := float64(e.form.Length-e.From) / float64(e.size)
	for _, w := range []struct {
		holds  bool
		weight float64
	}{{e.Awaited, awaitedWeight}, {e.Hit, hitWeight}, {e.Marked, markedWeight}, {e.superseded, supersededWeight}} {
		if w.holds {
			v *= w.weight
		}
	}
	return v / (1 + max(now.Sub(e.used), 0).Seconds()/fading.Seconds())
}

// errWorthless: snapshots of a higher value take up the budget.
var errWorthless = errors.New("its value is lower than that of every snapshot it would replace")

// reserve makes room for a new entry, and counts it. The caller must have the files of
// the evicted entries removed.
func (s *Store) reserve(e *Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.name] != nil { // since Save
		return errWorthless
	}
	if e.size > s.o.Budget {
		if !s.large {
			s.large = true
			s.o.Logger.Warn("cache on disk: a snapshot is larger than the budget", "tokens", e.form.Length, "bytes", e.size, "budget", s.o.Budget)
		}
		return errWorthless
	}
	if e.parent != nil && s.entries[e.Parent] != e.parent { // since Save
		return errWorthless
	}
	now := s.o.Clock()
	missing := s.bytes + e.size - s.o.Budget
	victims := s.victims(missing, e)
	for _, v := range victims {
		if missing -= v.size; v.value(now) > e.value(now) {
			return errWorthless
		}
	}
	if missing > 0 {
		return errWorthless
	}
	for _, v := range victims {
		s.counts.Evicted++
		s.forgetLocked(v)
	}
	s.bytes += e.size
	if e.parent != nil {
		e.parent.children++
	}
	return nil
}

// Used records that a snapshot was restored and saved a prompt so many tokens.
func (s *Store) Used(e *Entry, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Hits++
	s.counts.HitTokens += uint64(tokens)
	s.usedLocked(e, s.o.Clock())
}

// Refuse forgets a snapshot that could not be restored because of its own file, and those
// that continue it. It has the files removed unless the disk was the cause.
func (s *Store) Refuse(e *Entry, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(cause, snapshot.ErrDamaged) && !errors.Is(cause, snapshot.ErrForeign) && !errors.Is(cause, ErrMismatch) && !errors.Is(cause, os.ErrNotExist) {
		if !errors.Is(cause, ErrHangs) { // it is counted already
			s.counts.Errors++
		}
		s.o.Logger.Warn("cache on disk: a snapshot was not restored; the prompt runs instead", "file", s.path(e.name, final), "error", cause)
		return
	}
	s.counts.Refused++
	s.o.Logger.Warn("cache on disk: refused and removed a snapshot; the prompt runs instead", "file", s.path(e.name, final), "error", cause)
	s.forgetLocked(e)
	s.workLocked()
}

// ErrMismatch: a snapshot is whole, but belongs to another prompt.
var ErrMismatch = errors.New("its tokens do not match its name")

// fail records that the disk has failed; nothing is saved for retryAfter.
func (s *Store) fail(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Errors++
	s.failed = s.o.Clock()
	s.o.Logger.Warn("cache on disk: the disk failed; saving pauses", "operation", what, "error", err, "pause", retryAfter)
}

// Stats returns a consistent snapshot of the numbers.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.counts
	out.Entries, out.Bytes, out.Budget, out.Hangs = len(s.entries), s.bytes, s.o.Budget, s.hanging > 0
	return out
}

// Close waits until ctx ends for what is being written, and releases the directory. If an
// operation still runs then, no other Store gets the directory until it has ended,
// because it may still write.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	closed := make(chan error, 1)
	go func() {
		s.wg.Wait()
		closed <- s.lock.Close()
	}()
	defer s.stop()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("cache on disk: %s: a snapshot is still being written, and the directory stays locked until that or this process ends: %w", s.dir, ctx.Err())
	}
}
