// Package snapshot is the format in which the state of a sequence is kept outside a
// model: what its KV cache holds of the committed tokens, with the tokens and what the
// state belongs to. It knows bytes by name, not what they mean, and no cluster.
//
//	err := snapshot.Write(w, header, tokens, sections)
//	r, err := snapshot.Read(file, model, layout, most)
//	err = r.Expect(sections) // then r.Section(s) for each, in order
//
// # Format
//
// All numbers are little-endian.
//
//	8 bytes   "RMSNAP01", the format and its version
//	u32       length of the header, at most 1 MiB
//	header    JSON: model, layout, order, length, peak, partial, from, checkpoints,
//	          before, sections (name, bytes)
//	u32       CRC-32C of the header
//	sections  each in blocks of 1 MiB, the last of a section shorter:
//	          the bytes, then a u32, the CRC-32C of the section's number (u32), the
//	          block's number within it (u64) and the bytes
//
// The first section is "tokens", an int32 for each committed token. A reader knows sizes
// before it allocates, because the header comes first. Each block has a checksum with its
// place, so that a block that is damaged, missing or out of place is noticed before it is
// used.
//
// A snapshot that continues one has "from", the positions that the reader has already:
// its tokens and sections are those of the later ones, and "before" is the CRC-32C of the
// ids of the earlier ones, as int32.
package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

const (
	magic       = "RMSNAP01"
	blockBytes  = 1 << 20
	headerBytes = 1 << 20 // most bytes of a header
	tokensName  = "tokens"
)

// Errors of Read and its Reader wrap one of these.
var (
	// ErrDamaged: the bytes are not those that Write wrote.
	ErrDamaged = errors.New("the snapshot is damaged")
	// ErrForeign: the snapshot is of another model, layout or kind of host.
	ErrForeign = errors.New("the snapshot belongs to something else")
)

// Section is bytes that belong together, such as the KV rows of a layer. They may lie in
// several parts of memory, one after the other. The format does not depend on where they
// are cut.
type Section struct {
	Name  string
	Parts [][]byte
	// Overwritten: later tokens of the sequence overwrite the bytes. The format does not
	// have it.
	Overwritten bool
	// Read copies from a part of Parts to other memory, if that is more than copying.
	Read func(to, from []byte) error
}

// Bytes is the length of the section.
func (s Section) Bytes() (n int64) {
	for _, p := range s.Parts {
		n += int64(len(p))
	}
	return n
}

// Copy copies the bytes of a section to another of the same length, wherever the two are
// cut. move copies a part; the error is its.
func Copy(to, from Section, move func(to, from []byte) error) error {
	r := parts{slices.Clone(from.Parts)}
	for _, p := range to.Parts {
		if err := r.copyTo(p, move); err != nil {
			return err
		}
	}
	return nil
}

// Header says what a snapshot belongs to.
type Header struct {
	Model       string `json:"model"`                 // fingerprint of the model file
	Layout      string `json:"layout"`                // of the sections, with a version
	Length      int    `json:"length"`                // committed tokens
	Peak        int    `json:"peak"`                  // greatest length that the sequence had; it bounds a rewind
	Partial     int    `json:"partial,omitempty"`     // up to which length the sequence is partial, 0 if it is whole; see model.Entry
	Replayed    int    `json:"replayed,omitempty"`    // up to which length a fork runs tokens again (model.Fork), with sections up to there; 0 otherwise
	From        int    `json:"from,omitempty"`        // positions that the reader has, 0 for a whole snapshot
	Checkpoints []int  `json:"checkpoints,omitempty"` // lengths at which it has checkpoints, ascending; those beyond From
}

// MaxCheckpoints is the most checkpoints of a sequence. Headers come from other hosts and
// from disks, and a reader prepares a place for each checkpoint.
const MaxCheckpoints = 128

// checkpointsFit reports whether the lengths of the checkpoints are ascending, among those
// that the snapshot continues with, and not too many.
func (h Header) checkpointsFit() bool {
	if len(h.Checkpoints) > MaxCheckpoints {
		return false
	}
	last := h.From
	for _, n := range h.Checkpoints {
		if n <= last || n > h.Length {
			return false
		}
		last = n
	}
	return true
}

// partialFits reports whether a sequence can be partial as the header says.
func (h Header) partialFits() bool {
	if h.Replayed != 0 && (h.Replayed <= h.Length || h.Partial < h.Replayed) {
		return false
	}
	return h.Partial == 0 || h.Partial > h.Length
}

// namesCheckpoints is the checkpoints in an error, only their number if there are too many.
func (h Header) namesCheckpoints() string {
	if n := len(h.Checkpoints); n > MaxCheckpoints {
		return fmt.Sprint(n, " checkpoints")
	}
	return fmt.Sprint("checkpoints at ", h.Checkpoints)
}

// form is the header as it is written.
type form struct {
	Header
	Before   uint32        `json:"before,omitempty"`
	Order    string        `json:"order"` // of the bytes of numbers in sections: "little"
	Sections []sectionForm `json:"sections"`
}

type sectionForm struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Write writes a snapshot. tokens [h.Length] are the ids of the committed tokens. The
// error is w's, or says that the arguments do not fit together.
func Write(w io.Writer, h Header, tokens []int32, sections []Section) error {
	if len(tokens) != h.Length || h.Length < 1 || h.Peak < h.Length || h.From < 0 || h.From > h.Length || !h.partialFits() {
		return fmt.Errorf("a snapshot of %d tokens from %d on, length %d, greatest length %d, partial up to %d, run again up to %d", len(tokens), h.From, h.Length, h.Peak, h.Partial, h.Replayed)
	}
	if !h.checkpointsFit() {
		return fmt.Errorf("a snapshot of tokens %d to %d with %s; expected at most %d ascending lengths in between", h.From, h.Length, h.namesCheckpoints(), MaxCheckpoints)
	}
	ids := idBytes(tokens[h.From:])
	all := append([]Section{{Name: tokensName, Parts: [][]byte{ids}}}, sections...)
	f := form{Header: h, Before: crc32.Checksum(idBytes(tokens[:h.From]), castagnoli), Order: order()}
	for _, s := range all {
		f.Sections = append(f.Sections, sectionForm{s.Name, s.Bytes()})
	}
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("header of a snapshot: %w", err)
	}
	if len(text) > headerBytes {
		return fmt.Errorf("a snapshot with a header of %d bytes; at most %d are possible", len(text), headerBytes)
	}
	head := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	head = append(head, text...)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("writing a snapshot: %w", err)
	}
	var longest int64
	for _, s := range all {
		longest = max(longest, s.Bytes())
	}
	block := make([]byte, 0, min(longest, blockBytes)+4)
	for i, s := range all {
		r := parts{slices.Clone(s.Parts)}
		for number, left := uint64(0), s.Bytes(); left > 0; number++ {
			block = block[:min(left, blockBytes)]
			if err := r.copyTo(block, s.Read); err != nil {
				return fmt.Errorf("reading for a snapshot: %w", err)
			}
			left -= int64(len(block))
			block = binary.LittleEndian.AppendUint32(block, checksum(i, number, block))
			if _, err := w.Write(block); err != nil {
				return fmt.Errorf("writing a snapshot: %w", err)
			}
		}
	}
	return nil
}

// idBytes are token ids as they are written.
func idBytes(tokens []int32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// Reader reads a snapshot: its header by Read, then its sections in order.
type Reader struct {
	Header
	Tokens []int32 // all [Length]

	r        io.Reader
	sections []sectionForm // that are left
	number   int           // of the next
}

// Read reads the header and the tokens of a snapshot that must belong to the given model
// and layout and have at most so many tokens.
func Read(r io.Reader, model, layout string, most int) (*Reader, error) {
	return ReadOn(r, model, layout, most, nil)
}

// ReadOn is Read for a snapshot that may continue a sequence. before has the tokens that
// the reader has of it, which include those that the snapshot continues.
func ReadOn(r io.Reader, model, layout string, most int, before []int32) (*Reader, error) {
	head := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, damaged("no header: %v", err)
	}
	if string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("a snapshot starts with %q, not with %q: %w", head[:len(magic)], magic, ErrForeign)
	}
	n := binary.LittleEndian.Uint32(head[len(magic):])
	if n > headerBytes {
		return nil, damaged("a header of %d bytes", n)
	}
	text := make([]byte, n+4)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, damaged("the header is cut short: %v", err)
	}
	if sum := binary.LittleEndian.Uint32(text[n:]); sum != crc32.Checksum(text[:n], castagnoli) {
		return nil, damaged("the checksum of the header does not match")
	}
	var f form
	d := json.NewDecoder(bytes.NewReader(text[:n]))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, damaged("header: %v", err)
	}
	switch {
	case f.Model != model:
		return nil, fmt.Errorf("a snapshot belongs to model %q, this is model %q: %w", f.Model, model, ErrForeign)
	case f.Layout != layout:
		return nil, fmt.Errorf("the layout of a snapshot is %q, expected %q: %w", f.Layout, layout, ErrForeign)
	case f.Order != order():
		return nil, fmt.Errorf("the numbers of a snapshot are %s-endian: %w", f.Order, ErrForeign)
	case f.Length < 1 || f.Peak < f.Length:
		return nil, damaged("length %d, greatest length %d", f.Length, f.Peak)
	case !f.partialFits():
		return nil, damaged("length %d, partial up to %d, run again up to %d", f.Length, f.Partial, f.Replayed)
	case f.From < 0 || f.From > f.Length:
		return nil, damaged("length %d, from %d on", f.Length, f.From)
	case !f.checkpointsFit():
		return nil, damaged("length %d, from %d on, %s", f.Length, f.From, f.namesCheckpoints())
	case f.From > len(before):
		return nil, fmt.Errorf("a snapshot continues %d tokens, but the sequence has %d here: %w", f.From, len(before), ErrForeign)
	case f.Before != crc32.Checksum(idBytes(before[:f.From]), castagnoli):
		return nil, fmt.Errorf("the %d tokens that a snapshot continues differ from those here: %w", f.From, ErrForeign)
	case max(f.Length, f.Replayed) > most:
		return nil, fmt.Errorf("a snapshot has %d tokens; at most %d fit here", max(f.Length, f.Replayed), most)
	}
	x := &Reader{Header: f.Header, r: r, sections: f.Sections}
	ids := make([]byte, 4*(f.Length-f.From))
	if err := x.Section(Section{Name: tokensName, Parts: [][]byte{ids}}); err != nil {
		return nil, err
	}
	x.Tokens = make([]int32, f.Length)
	for i := copy(x.Tokens, before[:f.From]); i < f.Length; i++ {
		x.Tokens[i] = int32(binary.LittleEndian.Uint32(ids[4*(i-f.From):]))
	}
	return x, nil
}

// Expect checks that exactly the given sections follow, by name and length, without
// reading them.
func (x *Reader) Expect(sections []Section) error {
	if len(x.sections) != len(sections) {
		return damaged("%d sections follow, expected %d", len(x.sections), len(sections))
	}
	for i, s := range sections {
		if got := x.sections[i]; got.Name != s.Name || got.Bytes != s.Bytes() {
			return damaged("section %q of %d bytes, expected %q of %d", got.Name, got.Bytes, s.Name, s.Bytes())
		}
	}
	return nil
}

// Section reads the next section into s, which must have its name and length. Damaged
// blocks are not copied into it.
func (x *Reader) Section(s Section) error {
	if len(x.sections) == 0 {
		return damaged("no section %q", s.Name)
	}
	if got := x.sections[0]; got.Name != s.Name || got.Bytes != s.Bytes() {
		return damaged("section %q of %d bytes, expected %q of %d", got.Name, got.Bytes, s.Name, s.Bytes())
	}
	to := parts{slices.Clone(s.Parts)}
	left := s.Bytes()
	block := make([]byte, min(left, blockBytes)+4)
	for number := uint64(0); left > 0; number++ {
		n := min(left, blockBytes)
		if _, err := io.ReadFull(x.r, block[:n+4]); err != nil {
			return damaged("section %q is cut short in block %d: %v", s.Name, number, err)
		}
		if binary.LittleEndian.Uint32(block[n:]) != checksum(x.number, number, block[:n]) {
			return damaged("section %q: the checksum of block %d is wrong", s.Name, number)
		}
		to.copyFrom(block[:n])
		left -= n
	}
	x.sections, x.number = x.sections[1:], x.number+1
	return nil
}

func damaged(format string, a ...any) error {
	return fmt.Errorf(format+": %w", append(a, ErrDamaged)...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a block.
func checksum(section int, number uint64, data []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint32(place[:], uint32(section))
	binary.LittleEndian.PutUint64(place[4:], number)
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, data)
}

// order is the byte order of this host.
func order() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

// parts is memory that is read or written from front to back.
type parts struct{ rest [][]byte }

func (p *parts) each(n int, do func(part []byte, at int)) {
	for at := 0; at < n; {
		part := p.rest[0][:min(len(p.rest[0]), n-at)]
		do(part, at)
		at += len(part)
		if p.rest[0] = p.rest[0][len(part):]; len(p.rest[0]) == 0 {
			p.rest = p.rest[1:]
		}
	}
}

// copyTo copies with move, nil for copy, until its first error.
func (p *parts) copyTo(dst []byte, move func(to, from []byte) error) (err error) {
	p.each(len(dst), func(part []byte, at int) {
		if move == nil {
			copy(dst[at:], part)
		} else if err == nil {
			err = move(dst[at:at+len(part)], part)
		}
	})
	return err
}

func (p *parts) copyFrom(src []byte) {
	p.each(len(src), func(part []byte, at int) { copy(part, src[at:]) })
}
