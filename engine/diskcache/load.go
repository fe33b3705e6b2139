package diskcache

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"ringmaster/model/snapshot"
)

// Loader reads a snapshot. One goroutine uses it.
type Loader struct {
	s     *Store
	e     *Entry
	queue chan []byte
	free  chan []byte
	last  []byte        // the piece that Next returned
	stop  chan struct{} // closed by Close
	err   error         // valid when queue is closed
}

// Load begins to read a snapshot; nil if the disk hangs.
func (s *Store) Load(e *Entry) *Loader {
	l := &Loader{s: s, e: e, queue: make(chan []byte, pieces), free: make(chan []byte, pieces+1), stop: make(chan struct{})}
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
		l.err = l.read()
	}()
	return l
}

// Next returns the next piece, valid until the next call. It does not wait: ok is false
// if the piece has not been read yet, and Notify's function is called when it has. Errors
// are io.EOF after the last piece, the disk's, or wrap snapshot.ErrDamaged.
func (l *Loader) Next() (piece []byte, ok bool, err error) {
	if l.last != nil {
		l.free <- l.last
		l.last = nil
	}
	select {
	case piece, ok = <-l.queue:
		if !ok {
			return nil, false, l.err
		}
		l.last = piece
		return piece, true, nil
	default:
	}
	if l.s.hangs() {
		return nil, false, ErrHangs
	}
	return nil, false, nil
}

// Close ends the reading. An operation that hangs ends by itself at some time.
func (l *Loader) Close() { close(l.stop) }

// read reads the file to its end; the error is io.EOF then.
func (l *Loader) read() error {
	s, path := l.s, l.s.path(l.e.name, final)
	f, err := s.openFile(path)
	if err != nil {
		return err
	}
	defer s.closeFile(path, f)
	now, unreadable, err := s.entryOf(path, l.e.name, f)
	switch {
	case err != nil:
		return err
	case unreadable != nil:
		return fmt.Errorf("%w: %w", unreadable, snapshot.ErrDamaged)
	case !reflect.DeepEqual(now.form, l.e.form):
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
			if f := l.e.form; h.Length != f.Length || h.Peak != f.Peak || !slices.Equal(h.Checkpoints, f.Checkpoints) {
				return fmt.Errorf("the snapshot has length %d, greatest length %d and checkpoints at %v, the header %d, %d and %v: %w",
					h.Length, h.Peak, h.Checkpoints, f.Length, f.Peak, f.Checkpoints, snapshot.ErrDamaged)
			}
		}
		if n > 0 {
			l.queue <- b[:n] // never blocks: the queue has room for each buffer
			s.notify()
		}
		if err != nil {
			return io.EOF
		}
	}
}
