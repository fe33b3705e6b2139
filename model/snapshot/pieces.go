package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"iter"
)

// MaxPiece is the most bytes that Write writes at once.
const MaxPiece = max(blockBytes+4, headerBytes+len(magic)+8)

// Source is a snapshot that is written a piece at a time, whenever its user asks for one.
// It does no work in between. One goroutine at a time uses it.
type Source struct {
	next func() ([]byte, bool)
	stop func()
	err  error
}

// Pull makes a Source of what write writes.
func Pull(write func(w io.Writer) error) *Source {
	s := &Source{}
	s.next, s.stop = iter.Pull(func(yield func([]byte) bool) {
		s.err = write(writerFunc(func(b []byte) (int, error) {
			if !yield(b) {
				return 0, errStopped
			}
			return len(b), nil
		}))
	})
	return s
}

var errStopped = errors.New("stopped")

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Next returns the next piece, of at most MaxPiece bytes and valid until the next call.
// Its error is that of write, io.EOF after the last piece.
func (s *Source) Next() ([]byte, error) {
	if b, ok := s.next(); ok {
		return b, nil
	}
	if s.err != nil {
		return nil, s.err
	}
	return nil, io.EOF
}

// Stop ends the Source. It does not read the sequence, because that may no longer exist.
func (s *Source) Stop() { s.stop() }

// Sink reads a snapshot a piece at a time, whenever its user has one. It does no work in
// between. One goroutine at a time uses it.
type Sink struct {
	next  func() (struct{}, bool)
	stop  func()
	rest  []byte // of the piece
	ended bool   // no more pieces come
	done  bool   // read has returned
	err   error  // what it returned
}

// Push makes a Sink that gives read its bytes.
func Push(read func(r io.Reader) error) *Sink {
	s := &Sink{}
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		s.err = read(readerFunc(func(b []byte) (int, error) {
			for len(s.rest) == 0 {
				if s.ended {
					return 0, io.EOF
				}
				if !yield(struct{}{}) {
					return 0, errStopped
				}
			}
			n := copy(b, s.rest)
			s.rest = s.rest[n:]
			return n, nil
		}))
		s.done = true
	})
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Write gives read a piece and returns when it needs another. Its error is that of
// read, or that read has not read all.
func (s *Sink) Write(piece []byte) (int, error) {
	if len(piece) == 0 {
		return 0, nil
	}
	if s.rest = piece; !s.done {
		s.next()
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case len(s.rest) > 0:
		return 0, damaged("%d bytes follow its end", len(s.rest))
	}
	return len(piece), nil
}

// Close tells read that no more pieces come, and returns its error.
func (s *Sink) Close() error {
	if s.ended = true; !s.done {
		s.next()
	}
	return s.err
}

// Stop ends the Sink. It copies nothing more to the destination, because that may no
// longer exist.
func (s *Sink) Stop() { s.stop() }

// Each calls read for each of the snapshots that follow each other in r, at least once.
func Each(r io.Reader, read func(r io.Reader) error) error {
	for first := true; ; first = false {
		var b [1]byte
		n, err := io.ReadFull(r, b[:])
		switch {
		case errors.Is(err, io.EOF) && !first:
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if err := read(io.MultiReader(bytes.NewReader(b[:n]), r)); err != nil {
			return err
		}
	}
}

// Measure is the header of a snapshot and its length as a whole, by its first piece.
func Measure(first []byte) (h Header, total int64, err error) {
	head := len(magic) + 4
	if len(first) < head || string(first[:len(magic)]) != magic {
		return h, 0, damaged("no header")
	}
	n := int(binary.LittleEndian.Uint32(first[len(magic):]))
	if n > headerBytes || len(first) < head+n+4 {
		return h, 0, damaged("a header of %d bytes", n)
	}
	text := first[head : head+n]
	if binary.LittleEndian.Uint32(first[head+n:]) != crc32.Checksum(text, castagnoli) {
		return h, 0, damaged("the checksum of the header does not match")
	}
	var f form
	if err := json.Unmarshal(text, &f); err != nil {
		return h, 0, damaged("header: %v", err)
	}
	total = int64(head + n + 4)
	for _, s := range f.Sections {
		if s.Bytes < 0 || s.Bytes > 1<<50 {
			return h, 0, damaged("section %q of %d bytes", s.Name, s.Bytes)
		}
		total += s.Bytes + 4*((s.Bytes+blockBytes-1)/blockBytes)
	}
	return f.Header, total, nil
}
