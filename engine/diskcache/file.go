package diskcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	magic       = "RMCACHE2"
	headerBytes = 4096
	nameLength  = 32 // of the hexadecimal digits of a name

	final   = ".snapshot"
	partial = ".partial"
)

// form is the header of a file.
type form struct {
	Model  string `json:"model"`
	Scope  string `json:"scope"`
	Length int    `json:"length"` // committed tokens
	Peak   int    `json:"peak"`   // greatest length, as model.Import says
	Base   int    `json:"base"`   // least length to which the sequence can be rewound, other than 0
	Stride int    `json:"stride"` // tokens between two of the first Marks
	// Replay is how many tokens run again of a sequence that is forked at less than Base where
	// it has no checkpoint; 0: it cannot be forked there.
	Replay int `json:"replay,omitempty"`
	// Checkpoints are the lengths at which the sequence has checkpoints, so that it can be
	// forked there although they may be less than Base.
	Checkpoints []int `json:"checkpoints,omitempty"`
	// Marks are hashes of the first Replay+1, Replay+1+Stride, … tokens below Base, if there is
	// a Replay, of the first Base, Base+Stride, … tokens, then of those up to each checkpoint,
	// cut to markLength. They show roughly how much of the sequence a prompt shares, and
	// exactly whether it shares a checkpoint.
	Marks []string `json:"marks"`
	Whole string   `json:"whole"` // hash of all tokens
	Bytes int64    `json:"bytes"` // of the snapshot that follows
	ID    string   `json:"id"`    // of this file, random
	// From is the tokens that the file continues: those of the one named Parent, with the id
	// ParentID. The Checkpoints are those beyond.
	From     int    `json:"from,omitempty"`
	Parent   string `json:"parent,omitempty"`
	ParentID string `json:"parent_id,omitempty"`
	Shared   bool   `json:"shared,omitempty"` // the sequence was cut here for others to continue
	// Replaces is the name of a snapshot of the same conversation when it was shorter.
	Replaces string `json:"replaces,omitempty"`

	Awaited bool `json:"awaited,omitempty"` // see Worth
	Hit     bool `json:"hit,omitempty"`
	Marked  bool `json:"marked,omitempty"`
}

// check rejects what no Store has written.
func (f *form) check() error {
	switch {
	case f.Length < MinTokens || f.Peak < f.Length || f.Base < 1 || f.Base > f.Length || int64(f.Peak) > 1<<40:
		return fmt.Errorf("length %d, greatest length %d, least length %d", f.Length, f.Peak, f.Base)
	case f.From < 0 || f.From >= f.Length || (f.From > 0) != nameForm.MatchString(f.Parent) || (f.From > 0) != (f.ParentID != "") || f.ID == "":
		return fmt.Errorf("from token %d on, id %q, parent %q with id %q", f.From, f.ID, f.Parent, f.ParentID)
	case f.Replay < 0 || f.Replay > 0 && f.Replay+1 >= f.Base:
		return fmt.Errorf("%d tokens run again, least length %d", f.Replay, f.Base)
	case f.Bytes < 1 || f.Bytes > 1<<50:
		return fmt.Errorf("a snapshot of %d bytes", f.Bytes)
	case f.Stride < 1 || f.Stride > f.Length || len(f.Marks) != f.marks():
		return fmt.Errorf("%d marks at distances of %d and of %d checkpoints", len(f.Marks), f.Stride, len(f.Checkpoints))
	case len(f.Whole) != sha256.Size*2 || slices.ContainsFunc(f.Marks, func(m string) bool { return len(m) != markLength }):
		return errors.New("a hash has the wrong length")
	}
	return checkpointsFit(f.Checkpoints, f.From, f.Length)
}

// checkpointsFit rejects checkpoints that a saved sequence of the given length cannot
// have beyond from.
func checkpointsFit(at []int, from, length int) error {
	if len(at) > MaxCheckpoints {
		return fmt.Errorf("%d checkpoints; at most %d are possible", len(at), MaxCheckpoints)
	}
	for i, n := range at {
		if n <= from || n > length || i > 0 && n <= at[i-1] {
			return fmt.Errorf("checkpoints at %v of %d tokens from %d on; they must be ascending", at, length, from)
		}
	}
	return nil
}

// MaxCheckpoints is the most checkpoints of a sequence that is saved.
const MaxCheckpoints = mostMarks / 2

const (
	mostMarks  = 64 // with those of the checkpoints
	leastMarks = 32 // least distance
	markLength = 16 // hexadecimal digits
)

// marks is the number of the Marks.
func (f *form) marks() int {
	n := (f.Length-f.Base)/f.Stride + 1 + len(f.Checkpoints)
	if f.Replay > 0 {
		n += (f.Base-f.Replay-2)/f.Stride + 1
	}
	return n
}

// lengths returns the lengths of the prefixes that Marks has hashes of.
func (f *form) lengths() (out []int) {
	for n := f.Replay + 1; f.Replay > 0 && n < f.Base; n += f.Stride {
		out = append(out, n)
	}
	for n := f.Base; n <= f.Length; n += f.Stride {
		out = append(out, n)
	}
	return append(out, f.Checkpoints...)
}

// least returns the least length of a prefix that can be reused.
func (f *form) least() int {
	n := f.Base
	if len(f.Checkpoints) > 0 {
		n = min(n, f.Checkpoints[0])
	}
	if f.Replay > 0 {
		n = min(n, f.Replay+1)
	}
	return n
}

// reuse returns how many tokens of a prompt need not run that begins with the first n of the
// sequence, one of its lengths or more than Base.
func (f *form) reuse(n int) int {
	if n >= f.Base || slices.Contains(f.Checkpoints, n) {
		return n
	}
	return n - f.Replay
}

// encode returns the header.
func (f *form) encode() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, headerBytes)
	b = binary.LittleEndian.AppendUint32(append(b, magic...), uint32(len(text)))
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(text, castagnoli))
	if len(b) > headerBytes {
		return nil, fmt.Errorf("a header of %d bytes; at most %d are possible", len(b), headerBytes)
	}
	return append(b, make([]byte, headerBytes-len(b))...), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// decode reads a header [headerBytes].
func decode(b []byte) (f form, err error) {
	const at = len(magic) + 4
	if len(b) != headerBytes {
		return f, fmt.Errorf("a header of %d bytes", len(b))
	}
	if string(b[:len(magic)]) != magic {
		return f, fmt.Errorf("it begins with %q, but this build reads %q", b[:len(magic)], magic)
	}
	n := int(binary.LittleEndian.Uint32(b[len(magic):]))
	if n < 0 || n > headerBytes-at-4 {
		return f, fmt.Errorf("a description of %d bytes", n)
	}
	if binary.LittleEndian.Uint32(b[at+n:]) != crc32.Checksum(b[at:at+n], castagnoli) {
		return f, errors.New("the checksum of the header does not match")
	}
	if slices.ContainsFunc(b[at+n+4:], func(c byte) bool { return c != 0 }) {
		return f, errors.New("its header is followed by something other than zeros")
	}
	d := json.NewDecoder(bytes.NewReader(b[at : at+n]))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("header: %w", err)
	}
	return f, f.check()
}

var nameForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (s *Store) path(name, kind string) string { return filepath.Join(s.dir, name+kind) }

// scan reads the headers of all files. It removes unfinished and unreadable snapshots,
// and leaves alone what does not have a snapshot's name.
func (s *Store) scan() error {
	var list []os.DirEntry
	err := s.do(readLimit, "listing "+s.dir, func() (err error) {
		list, err = os.ReadDir(s.dir)
		return err
	})
	if err != nil {
		return err
	}
	for _, item := range list {
		kind := filepath.Ext(item.Name())
		name := strings.TrimSuffix(item.Name(), kind)
		if !nameForm.MatchString(name) || !item.Type().IsRegular() {
			continue
		}
		path := s.path(name, kind)
		switch kind {
		case partial:
			s.o.Logger.Info("cache on disk: removed an unfinished snapshot", "file", path)
			err = s.remove(path)
		case final:
			var e *Entry
			var unreadable error
			if e, unreadable, err = s.readEntry(path, name); unreadable != nil {
				s.counts.Refused++
				s.o.Logger.Warn("cache on disk: refused and removed a snapshot", "file", path, "error", unreadable)
				err = s.remove(path)
			} else if err == nil {
				s.entries[name] = e
				s.bytes += e.size
			}
		}
		if err != nil {
			return err
		}
	}
	s.connect()
	s.shrink()
	err = s.writable()
	if DiskFailed(err) && !errors.Is(err, ErrHangs) {
		s.fail("writing a first file", err) // the existing snapshots can still be read
		return nil
	}
	return err
}

// connect connects all entries to their parents, and removes those that have none.
func (s *Store) connect() {
	for _, e := range slices.SortedFunc(maps.Values(s.entries), func(a, b *Entry) int { return cmp.Compare(a.form.Length, b.form.Length) }) {
		if p := s.entries[e.Replaces]; p != nil {
			p.superseded = true
		}
		if !s.adopt(e) {
			s.counts.Refused++
			s.o.Logger.Warn("cache on disk: removed a snapshot, because the one that it continues is missing", "file", s.path(e.name, final), "continues", s.path(e.Parent, final))
			s.forgetLocked(e)
		}
	}
	s.clean()
}

// readEntry reads the header of a file.
func (s *Store) readEntry(path, name string) (e *Entry, unreadable, err error) {
	f, err := s.openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer s.closeFile(path, f)
	return s.entryOf(path, name, f)
}

// entryOf reads the header of a file, up to the snapshot. unreadable says what is wrong
// with it; err means that the disk has failed.
func (s *Store) entryOf(path, name string, f Source) (e *Entry, unreadable, err error) {
	head := make([]byte, headerBytes)
	var info os.FileInfo
	err = s.do(readLimit, "reading "+path, func() (err error) {
		if info, err = f.Stat(); err != nil {
			return err
		}
		if unreadable = trusted(path, info); unreadable == nil {
			if _, unreadable = io.ReadFull(f, head); unreadable != nil {
				unreadable = fmt.Errorf("the header is cut short: %w", unreadable)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if unreadable != nil {
		return nil, unreadable, nil
	}
	h, unreadable := decode(head)
	switch {
	case unreadable != nil:
		return nil, unreadable, nil
	case h.Whole[:nameLength] != name:
		return nil, errors.New("its name belongs to another snapshot"), nil
	case info.Size() != headerBytes+h.Bytes:
		return nil, fmt.Errorf("it has %d bytes, expected %d", info.Size(), headerBytes+h.Bytes), nil
	}
	return &Entry{form: h, name: name, size: info.Size(), used: info.ModTime()}, nil, nil
}

// shrink evicts what exceeds the budget, which may be smaller than the last server's. No
// other goroutine has the Store yet.
func (s *Store) shrink() {
	for _, e := range s.victims(s.bytes-s.o.Budget, nil) {
		s.counts.Evicted++
		s.forgetLocked(e)
	}
	s.clean()
}

// writable returns an error if no file can be written.
func (s *Store) writable() error {
	path := s.path(strings.Repeat("0", nameLength), partial)
	return s.do(writeLimit, "writing "+path, func() error {
		f, err := s.o.Files.Create(path)
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(magic))
		return errors.Join(err, f.Close(), s.o.Files.Remove(path))
	})
}

// sized sets a slice's length to 0 and its capacity to at least n.
func sized(b []byte, n int) []byte { return slices.Grow(b[:0], n) }
