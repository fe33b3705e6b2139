package diskcache

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"ringmaster/model/snapshot"
)

// Loader reads the snapshots that make a sequence, one after the other. One goroutine uses
// it.
type Loader struct {
	s     *Store
	e     *Entry
	queue chan loaded
	free  chan []byte
	last  loaded        // that Next returned
	stop  chan struct{} // closed by Close
	ends  *Entry        // whose file was read last; valid when queue is closed
	err   error         // valid when queue is closed
}

// loaded is a piece of a file.
type loaded struct {
	piece []byte
	of    *Entry
}

// Load begins to read the snapshots of an entry: its own, and before it those that it
// continues.
func (s *Store) Load(e *Entry) *Loader {
	l := &Loader{s: s, e: e, ends: e, queue: make(chan loaded, pieces), free: make(chan []byte, pieces+1), stop: make(chan struct{})}
	for range pieces {
		l.free <- nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hanging > 0 || s.closing {
		l.err = ErrHangs
		if s.closing {
			l.err = errAborted
		}
		close(l.queue)
		return l
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.notify()
		defer close(l.queue)
		for _, l.ends = range e.chain() {
			if l.err = l.read(l.ends); !errors.Is(l.err, io.EOF) {
				return
			}
		}
	}()
	return l
}

// Next returns the next piece, valid until the next call. It does not wait: ok is false
// if the piece has not been read yet, and Notify's function is called when it has. Errors
// are io.EOF after the last piece, the disk's, or wrap snapshot.ErrDamaged.
func (l *Loader) Next() (piece []byte, ok bool, err error) {
	if l.last.piece != nil {
		l.free <- l.last.piece
		l.last.piece = nil
	}
	select {
	case next, ok := <-l.queue:
		if !ok {
			l.last.of = l.ends
			return nil, false, l.err
		}
		l.last = next
		return next.piece, true, nil
	default:
	}
	if l.s.hangs() {
		return nil, false, ErrHangs
	}
	return nil, false, nil
}

// At returns the entry that has the file of what Next returned last, a piece or an error.
func (l *Loader) At() *Entry {
	if l.last.of == nil {
		return l.e
	}
	return l.last.of
}

// Close ends the reading. An operation that hangs ends by itself at some time.
func (l *Loader) Close() { close(l.stop) }

// read reads the file of an entry to its end; the error is io.EOF then.
func (l *Loader) read(e *Entry) error {
	s, path := l.s, l.s.path(e.name, final)
	f, err := s.openFile(path)
	if err != nil {
		return err
	}
	defer s.closeFile(path, f)
	now, unreadable, err := s.entryOf(path, e.name, f)
	switch {
	case err != nil:
		return err
	case unreadable != nil:
		return fmt.Errorf("%w: %w", unreadable, snapshot.ErrDamaged)
	case !reflect.DeepEqual(now.form, e.form):
		return fmt.Errorf("its header has changed: %w", snapshot.ErrDamaged)
	}
	for first := true; ; first = false {
		var b []byte
		select {
		case b = <-l.free:
		case <-l.stop:
			return errAborted
		case <-s.ctx.Done():
			return errAborted
		}
		if s.hangs() { // a save may hang; Next reports that already
			return ErrHangs
		}
		b = sized(b, snapshot.MaxPiece)[:snapshot.MaxPiece]
		var n int
		err := s.do(readLimit, "reading "+path, func() (err error) {
			n, err = io.ReadFull(f, b)
			return err
		})
		if errors.Is(err, ErrHangs) || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if first {
			h, _, err := snapshot.Measure(b[:n])
			if err != nil {
				return err
			}
			if f := e.form; h.From != f.From || h.Length != f.Length || !slices.Equal(h.Checkpoints, f.Checkpoints) {
				return fmt.Errorf("the snapshot has tokens %d to %d and checkpoints at %v, the header %d to %d and %v: %w",
					h.From, h.Length, h.Checkpoints, f.From, f.Length, f.Checkpoints, snapshot.ErrDamaged)
			}
		}
		if n > 0 {
			l.queue <- loaded{b[:n], e} // never blocks: the queue has room for each buffer
			s.notify()
		}
		if err != nil {
			return io.EOF
		}
	}
}
