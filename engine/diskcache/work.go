package diskcache

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// The limits for one operation of the disk, which is at most a piece or a sync of
// syncEvery pieces. Reading has less time because a request waits for it.
const (
	readLimit  = 10 * time.Second
	writeLimit = time.Minute
)

// ErrHangs: an operation of the disk has not ended within its limit.
var ErrHangs = errors.New("the disk does not respond")

// do runs an operation of the disk and returns when it has ended, however long that
// takes, so it must run in a goroutine that no other waits for. If the operation exceeds
// limit, the disk counts as hanging until it has ended, and the error wraps ErrHangs,
// whatever the operation returned.
func (s *Store) do(limit time.Duration, what string, operation func() error) error {
	started := time.Now()
	var ended, late bool // of mu
	timer := time.AfterFunc(limit, func() {
		s.mu.Lock()
		if ended {
			s.mu.Unlock()
			return
		}
		late = true
		s.hanging++
		s.counts.Errors++
		s.version++
		s.o.Logger.Error("cache on disk: the disk does not respond; nothing is saved or restored until it does", "operation", what, "limit", limit)
		s.mu.Unlock()
		s.notify()
	})
	err := operation()
	timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	ended = true
	if !late {
		return err
	}
	s.hanging--
	s.version++
	s.failed = s.o.Clock()
	s.o.Logger.Warn("cache on disk: the disk responds again; saving pauses", "operation", what, "duration", time.Since(started), "error", err, "pause", retryAfter)
	return errors.Join(fmt.Errorf("%s took more than %v: %w", what, limit, ErrHangs), err)
}

// hangs reports whether an operation has passed its limit.
func (s *Store) hangs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hanging > 0
}

// workLocked starts work if there is any to do and it does not run; mu is held.
func (s *Store) workLocked() {
	if s.working || s.closing {
		return
	}
	s.working = true
	s.wg.Add(1)
	go s.work()
}

// work removes, touches and writes files until nothing is left to do. It removes a file
// before it writes another with that name.
func (s *Store) work() {
	defer s.wg.Done()
	for {
		s.mu.Lock()
		var w *Saver
		switch {
		case len(s.removed) > 0 || len(s.touched) > 0:
		case len(s.savers) > 0:
			w = s.savers[0]
			s.savers = slices.Delete(s.savers, 0, 1)
		default:
			s.working = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if w != nil {
			w.run()
			continue
		}
		s.clean()
		s.touch()
	}
}

// clean removes the files of forgotten entries.
func (s *Store) clean() {
	s.mu.Lock()
	names := s.removed
	s.removed = nil
	s.mu.Unlock()
	for _, name := range names {
		path := s.path(name, final)
		if err := s.remove(path); err != nil && !errors.Is(err, ErrHangs) {
			s.mu.Lock()
			s.counts.Errors++
			s.mu.Unlock()
			s.o.Logger.Warn("cache on disk: a snapshot cannot be removed", "file", path, "error", err)
		}
	}
}

// touch records the use of snapshots in the times of their files, for the next server.
func (s *Store) touch() {
	s.mu.Lock()
	times := s.touched
	s.touched = map[string]time.Time{}
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(times)) {
		path := s.path(name, final)
		// If it fails, the snapshot only looks older than it is.
		_ = s.do(writeLimit, "touching "+path, func() error { return s.o.Files.Touch(path, times[name]) })
	}
}

// remove removes a file if it exists.
func (s *Store) remove(path string) error {
	return s.do(writeLimit, "removing "+path, func() error {
		if err := s.o.Files.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (s *Store) openFile(path string) (f Source, err error) {
	err = s.do(readLimit, "opening "+path, func() (err error) {
		f, err = s.o.Files.Open(path)
		return err
	})
	if err != nil && f != nil { // too late
		s.closeFile(path, f)
		return nil, err
	}
	return f, err
}

// closeFile closes a file that was read.
func (s *Store) closeFile(path string, f Source) {
	_ = s.do(readLimit, "closing "+path, f.Close)
}
