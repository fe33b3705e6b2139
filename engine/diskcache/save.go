package diskcache

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"ringmaster/model/snapshot"
)

// pieces is how many pieces of a snapshot that is being written are in memory at a time;
// as many again for one that is being read.
const pieces = 4

// MemoryBytes is the most memory for the pieces of one snapshot that is written and one
// that is read. Snapshots that wait to be written have no pieces.
const MemoryBytes = 2 * (pieces + 1) * snapshot.MaxPiece

// Sequence describes what a snapshot contains.
type Sequence struct {
	Scope  string
	Tokens []int32 // committed; they no longer change
	Peak   int
	// Checkpoints are the lengths at which it has checkpoints, ascending. They no longer
	// change; a sequence with more than MaxCheckpoints is not saved.
	Checkpoints []int
	// Cuts are the lengths at which other sequences are likely to branch off, ascending: a
	// file may end there, for them to continue it.
	Cuts []int
	Worth
}

// Worth is what is known about the chance that a conversation continues.
type Worth struct {
	Awaited bool // the client will send results of functions
	Hit     bool // it continued before
	Marked  bool // the client wants it to be kept
}

// Saver writes a snapshot. One goroutine uses it.
type Saver struct {
	s     *Store
	e     *Entry
	queue chan []byte // to the goroutine that writes
	free  chan []byte
	keep  bool          // the snapshot is complete
	ended chan struct{} // closed when nothing more is written
}

// From and To say which tokens the snapshot has: it continues one that ends at From, and if
// To is not the end of the sequence, a second snapshot is to be saved when this one has
// Ended: without Cuts, so that it is the last.
func (w *Saver) From() int { return w.e.From }

// To is the end of the tokens; see From.
func (w *Saver) To() int { return w.e.form.Length }

// Save begins a snapshot. It returns nil if none is wanted because the sequence is short
// or known already, or because the disk hangs or has failed recently.
func (s *Store) Save(q Sequence) *Saver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.Tokens) < MinTokens || q.Peak-s.rewind > len(q.Tokens) {
		return nil
	}
	if err := checkpointsFit(q.Checkpoints, 0, len(q.Tokens)); err != nil {
		s.o.Logger.Warn("cache on disk: a sequence is not saved", "tokens", len(q.Tokens), "error", err)
		return nil
	}
	if s.closing || s.hanging > 0 || !s.failed.IsZero() && s.o.Clock().Sub(s.failed) < retryAfter {
		return nil
	}
	scope := hashScope(q.Scope)
	var shorter []*Entry // of the scope
	lengths := []int{len(q.Tokens)}
	for _, e := range s.entries {
		if e.Model == s.model && e.Scope == scope && e.form.Length < len(q.Tokens) {
			shorter, lengths = append(shorter, e), append(lengths, e.form.Length)
		}
	}
	sums := s.prefixes(scope, q.Tokens, lengths)
	if old := s.entries[sums[len(q.Tokens)][:nameLength]]; old != nil {
		s.usedLocked(old, s.o.Clock())
		return nil
	}
	begins := slices.DeleteFunc(shorter, func(e *Entry) bool { return sums[e.form.Length] != e.Whole })
	slices.SortFunc(begins, func(a, b *Entry) int { return cmp.Compare(a.form.Length, b.form.Length) })
	parent, to := s.cut(q, begins)
	f := s.describe(q, parent, to)
	if to == len(q.Tokens) {
		for _, e := range begins {
			if !e.Shared && e != parent {
				f.Replaces = e.name
			}
		}
	}
	w := &Saver{s: s, e: &Entry{form: f, name: f.Whole[:nameLength], parent: parent}, queue: make(chan []byte, pieces), free: make(chan []byte, pieces+1), ended: make(chan struct{})}
	s.savers = append(s.savers, w)
	s.workLocked()
	return w
}

// describe returns the header of a file of a sequence that continues parent and ends at to.
func (s *Store) describe(q Sequence, parent *Entry, to int) form {
	f := form{Model: s.model, Scope: hashScope(q.Scope), ID: rand.Text(), Length: to, Peak: q.Peak}
	if parent != nil {
		f.From, f.Parent, f.ParentID, f.Peak = parent.form.Length, parent.name, parent.ID, max(q.Peak, parent.form.Peak)
	}
	if f.Shared = to < len(q.Tokens); !f.Shared {
		f.Awaited, f.Hit, f.Marked = q.Awaited, q.Hit, q.Marked
	}
	f.Peak = min(f.Peak, to+s.rewind)
	f.Base = max(1, f.Peak-s.rewind)
	if s.replay+1 < f.Base {
		f.Replay = s.replay
	}
	for _, n := range q.Checkpoints {
		if f.From < n && n <= to {
			f.Checkpoints = append(f.Checkpoints, n)
		}
	}
	first := f.Base
	if f.Replay > 0 {
		first = f.Replay + 1
	}
	f.Stride = max(leastMarks, (to-first)/(mostMarks-len(f.Checkpoints)-2)+1)
	sums := s.prefixes(f.Scope, q.Tokens, append(f.lengths(), to))
	f.Whole = sums[to]
	for _, n := range f.lengths() {
		f.Marks = append(f.Marks, sums[n][:markLength])
	}
	return f
}

// Ready reports whether Put takes a piece now. If not, Notify's function is called once
// it does.
func (w *Saver) Ready() bool { return len(w.free) > 0 }

// Put takes a copy of the next piece; Ready must have been true. It does not wait.
func (w *Saver) Put(piece []byte) {
	w.queue <- append(sized(<-w.free, len(piece)), piece...)
}

// Ended reports whether the snapshot needs no more pieces, because the disk has failed or
// hangs or the snapshot found no room.
func (w *Saver) Ended() bool {
	select {
	case <-w.ended:
		return true
	default:
		return w.s.hangs()
	}
}

// Finish ends a complete snapshot; its remaining pieces are written in the background.
func (w *Saver) Finish() {
	w.keep = true
	close(w.queue)
}

// Abort ends an incomplete snapshot.
func (w *Saver) Abort() { close(w.queue) }

// run writes the snapshot.
func (w *Saver) run() {
	for range pieces {
		w.free <- nil
	}
	w.s.notify()
	err := w.write()
	close(w.ended)
	if err != nil && !errors.Is(err, errAborted) && !errors.Is(err, errWorthless) && !errors.Is(err, ErrHangs) {
		w.s.fail("writing "+w.s.path(w.e.name, partial), err)
	}
	w.s.notify()
}

var errAborted = errors.New("the snapshot was not completed")

// next waits for a piece; false if the snapshot ends.
func (w *Saver) next() (piece []byte, ok bool) {
	select {
	case piece, ok = <-w.queue:
		return piece, ok
	case <-w.s.ctx.Done():
		return nil, false
	}
}

func (w *Saver) write() (err error) {
	s, e := w.s, w.e
	piece, ok := w.next()
	if !ok {
		return errAborted
	}
	_, e.Bytes, err = snapshot.Measure(piece)
	if err != nil {
		return err
	}
	e.size, e.used = headerBytes+e.Bytes, s.o.Clock()
	if err := s.reserve(e); err != nil {
		return err
	}
	s.clean()
	path := s.path(e.name, partial)
	if err = w.fill(path, piece); err == nil {
		err = s.do(writeLimit, "renaming "+path, func() error { return s.o.Files.Rename(path, s.path(e.name, final)) })
	}
	if err == nil {
		err = s.do(writeLimit, "syncing "+s.dir, func() error { return s.o.Files.SyncDir(s.dir) })
	}
	if err != nil {
		err = errors.Join(err, s.remove(path), s.remove(s.path(e.name, final)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.bytes -= e.size
		if e.parent != nil {
			e.parent.children--
		}
		return err
	}
	s.entries[e.name] = e
	if e.parent != nil && s.entries[e.Parent] != e.parent { // it was refused meanwhile
		s.forgetLocked(e)
		return errWorthless
	}
	if p := s.entries[e.Replaces]; p != nil {
		p.superseded = true
	}
	s.version++
	s.counts.Saved++
	s.counts.SavedBytes += uint64(e.size)
	return nil
}

// syncEvery is after how many pieces a file is synced, so that each sync is short.
const syncEvery = 32

// fill writes the header and the pieces to a file; piece is the first.
func (w *Saver) fill(path string, piece []byte) error {
	head, err := w.e.encode()
	if err != nil {
		return err
	}
	var f File
	err = w.s.do(writeLimit, "creating "+path, func() (err error) {
		f, err = w.s.o.Files.Create(path)
		return err
	})
	if f == nil {
		return err
	}
	write := func(b []byte) error {
		return w.s.do(writeLimit, "writing "+path, func() error {
			_, err := f.Write(b)
			return err
		})
	}
	sync := func() error { return w.s.do(writeLimit, "syncing "+path, f.Sync) }
	if err == nil {
		err = func() error {
			if err := write(head); err != nil {
				return err
			}
			left := w.e.Bytes
			ok := true
			for n := 1; ok; n++ {
				if left -= int64(len(piece)); left < 0 {
					return fmt.Errorf("a snapshot of more than %d bytes", w.e.Bytes)
				}
				if err := write(piece); err != nil {
					return err
				}
				w.free <- piece
				w.s.notify()
				if n%syncEvery == 0 {
					if err := sync(); err != nil {
						return err
					}
				}
				piece, ok = w.next()
			}
			if w.s.ctx.Err() != nil || !w.keep || left > 0 {
				return errAborted
			}
			return sync()
		}()
	}
	return errors.Join(err, w.s.do(writeLimit, "closing "+path, f.Close))
}
