package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"ringmaster/model"
)

// work is the payload of a piece of work. On the wire, little-endian:
//
//	u8  format, 9, or 10 for a step that goes through the helper
//	u8  what became of the step before; see kept.go
//	u16 drops, u32 entries
//	u64 number of the step
//	u32 sequences with checkpoints, u32 forks
//	what the step before keeps, if not all
//	drops times:       u32 sequence
//	checkpoints times: u32 sequence, u32 lengths
//	                   lengths times u32
//	forks times:       u32 sequence, u32 sequence that it comes from, u32 length,
//	                   u8 1 if it runs tokens again, else 0
//	entries times:     u32 sequence, u32 position, u32 tokens, u8 want, u32 until
//	                   tokens times i32
//	in format 10 entries times: i32 positions of which the helper has the state,
//	                   -1 for an entry that rank 0 runs alone
//
// A piece of a sequence that all ranks receive has, in place of the parts of a step:
//
//	u8  format, 4
//	u8  as above
//	u16 1 for the first piece of the sequence, 2 for the last, 3 for both, else 0
//	u32 bytes, which rank 0 broadcasts
//	u64 number, among those of steps
//	u32 sequence
//	what the step before keeps, if not all
type work struct {
	committed bool   // the previous step of this epoch is committed
	kept      []int  // the tokens that its entries keep; nil: all
	number    uint64 // of the step, from 1; grows with every step that is sent
	step      model.Step
	piece     *piece // in place of the step; nil: it is a step
	task      *Task  // in place of the step; see Task
}

// piece is a piece of a snapshot.
type piece struct {
	seq         model.SeqID
	bytes       int // at most model.MaxPiece
	first, last bool
}

// Sizes in bytes and limits of the payload.
const (
	payloadFormat     = 9
	helpFormat        = 10
	pieceFormat       = 4
	pieceHeader       = 20
	payloadHeader     = 24
	checkpointsHeader = 8
	forkBytes         = 13
	entryHeader       = 17
	maxDrops          = math.MaxUint16
)

// encode returns the payload. A step that does not fit the format is an error.
func (w work) encode() ([]byte, error) {
	if w.piece != nil {
		return w.encodePiece(), nil
	}
	if w.task != nil {
		return w.encodeTask(), nil
	}
	if len(w.step.Drop) > maxDrops {
		return nil, fmt.Errorf("a step that drops %d sequences; at most %d are possible", len(w.step.Drop), maxDrops)
	}
	size := payloadHeader + 4*(1+len(w.kept)) + 4*len(w.step.Drop) + forkBytes*len(w.step.Forks)
	for _, c := range w.step.Checkpoints {
		size += checkpointsHeader + 4*len(c.At)
	}
	for _, e := range w.step.Entries {
		size += entryHeader + 4*len(e.Tokens)
	}
	size += 4 * len(w.step.Help)
	b := make([]byte, 0, size)
	format := byte(payloadFormat)
	if w.step.Help != nil {
		format = helpFormat
	}
	b = append(b, format, fate(w.committed, w.kept))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(w.step.Drop)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.step.Entries)))
	b = binary.LittleEndian.AppendUint64(b, w.number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.step.Checkpoints)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.step.Forks)))
	b = appendKept(b, w.committed, w.kept)
	for _, id := range w.step.Drop {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	for _, c := range w.step.Checkpoints {
		for i, at := range c.At {
			if at > math.MaxInt32 || !follows(c.At[:i], at) {
				return nil, fmt.Errorf("sequence %d with checkpoints at %d is not part of a step; their lengths are positive and ascend", c.Seq, c.At)
			}
		}
		b = appendCheckpoints(b, c)
	}
	for _, f := range w.step.Forks {
		if f.Length < 1 || f.Length > math.MaxInt32 {
			return nil, fmt.Errorf("sequence %d of the first %d tokens of sequence %d is not a fork of a step", f.Seq, f.Length, f.From)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(f.Seq))
		b = binary.LittleEndian.AppendUint32(b, uint32(f.From))
		b = binary.LittleEndian.AppendUint32(b, uint32(f.Length))
		replay := byte(0)
		if f.Replay {
			replay = 1
		}
		b = append(b, replay)
	}
	for _, e := range w.step.Entries {
		if e.Pos < 0 || e.Pos > math.MaxInt32 || len(e.Tokens) == 0 || e.Want > model.WantAll || e.Until < 0 || e.Until > math.MaxInt32 {
			return nil, fmt.Errorf("sequence %d with %d tokens at position %d, want %d, up to %d, is not an entry of a step", e.Seq, len(e.Tokens), e.Pos, e.Want, e.Until)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Seq))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Pos))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Tokens)))
		b = append(b, byte(e.Want))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Until))
		for _, t := range e.Tokens {
			b = binary.LittleEndian.AppendUint32(b, uint32(t))
		}
	}
	for _, n := range w.step.Help {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b, nil
}

// appendCheckpoints appends the checkpoints of a sequence.
func appendCheckpoints(b []byte, c model.Checkpoints) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Seq))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.At)))
	for _, at := range c.At {
		b = binary.LittleEndian.AppendUint32(b, uint32(at))
	}
	return b
}

// follows reports whether a length can be the next of these lengths of checkpoints.
func follows(before []int, at int) bool {
	return at > 0 && (len(before) == 0 || at > before[len(before)-1])
}

// errShort: a payload announces more than it has.
var errShort = errors.New("it is truncated")

// encodePiece returns the payload of a piece.
func (w work) encodePiece() []byte {
	b := make([]byte, 4, pieceHeader)
	b[0], b[1] = pieceFormat, fate(w.committed, w.kept)
	if w.piece.first {
		b[2] |= 1
	}
	if w.piece.last {
		b[2] |= 2
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(w.piece.bytes))
	b = binary.LittleEndian.AppendUint64(b, w.number)
	b = binary.LittleEndian.AppendUint32(b, uint32(w.piece.seq))
	return appendKept(b, w.committed, w.kept)
}

// parsePiece is parseWork for a piece.
func parsePiece(b []byte) (w work, err error) {
	if len(b) < pieceHeader {
		return w, errShort
	}
	committed, kept, rest, err := parseFate(b[1], b[pieceHeader:])
	if err != nil {
		return w, err
	}
	flags, n := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])
	switch {
	case len(rest) > 0:
		return w, fmt.Errorf("%d bytes follow its end", len(rest))
	case flags > 3:
		return w, fmt.Errorf("a piece has flags %d", flags)
	case n < 1 || n > model.MaxPiece:
		return w, fmt.Errorf("a piece of %d bytes, expected 1 to %d", n, model.MaxPiece)
	}
	return work{committed: committed, kept: kept, number: binary.LittleEndian.Uint64(b[8:]), piece: &piece{
		seq: model.SeqID(binary.LittleEndian.Uint32(b[16:])), bytes: int(n), first: flags&1 != 0, last: flags&2 != 0}}, nil
}

// decodeWork reads a payload. It allocates no more than the payload's own length
// justifies. The model checks the tokens and positions.
func decodeWork(b []byte) (work, error) {
	parse := parseWork
	switch {
	case len(b) > 0 && b[0] == pieceFormat:
		parse = parsePiece
	case len(b) > 0 && b[0] == examineFormat:
		parse = parseTask
	}
	w, err := parse(b)
	if err != nil {
		return work{}, fmt.Errorf("payload of %d bytes: %w", len(b), err)
	}
	return w, nil
}

func parseWork(b []byte) (w work, err error) {
	if len(b) > 0 && b[0] != payloadFormat && b[0] != helpFormat {
		return w, fmt.Errorf("format %d; this build reads %d and %d", b[0], payloadFormat, helpFormat)
	}
	if len(b) < payloadHeader {
		return w, errShort
	}
	helped := b[0] == helpFormat
	var rest []byte
	if w.committed, w.kept, rest, err = parseFate(b[1], b[payloadHeader:]); err != nil {
		return w, err
	}
	drops := uint64(binary.LittleEndian.Uint16(b[2:]))
	entries := uint64(binary.LittleEndian.Uint32(b[4:]))
	w.number = binary.LittleEndian.Uint64(b[8:])
	checkpoints := uint64(binary.LittleEndian.Uint32(b[16:]))
	forks := uint64(binary.LittleEndian.Uint32(b[20:]))
	b = rest
	if uint64(len(b)) < 4*drops+checkpointsHeader*checkpoints+forkBytes*forks+(entryHeader+4)*entries {
		return w, errShort
	}
	if drops > 0 {
		w.step.Drop = make([]model.SeqID, drops)
		for i := range w.step.Drop {
			w.step.Drop[i] = model.SeqID(binary.LittleEndian.Uint32(b[4*i:]))
		}
		b = b[4*drops:]
	}
	if checkpoints > 0 {
		w.step.Checkpoints = make([]model.Checkpoints, checkpoints)
	}
	for i := range w.step.Checkpoints {
		if b, err = parseCheckpoints(b, &w.step.Checkpoints[i]); err != nil {
			return w, fmt.Errorf("checkpoints %d of %d: %w", i, checkpoints, err)
		}
	}
	if uint64(len(b)) < forkBytes*forks {
		return w, errShort
	}
	if forks > 0 {
		w.step.Forks = make([]model.Fork, forks)
	}
	for i := range w.step.Forks {
		length := binary.LittleEndian.Uint32(b[8:])
		if length < 1 || length > math.MaxInt32 || b[12] > 1 {
			return w, fmt.Errorf("fork %d of %d: length %d, runs tokens again %d", i, forks, length, b[12])
		}
		w.step.Forks[i] = model.Fork{Seq: model.SeqID(binary.LittleEndian.Uint32(b)), From: model.SeqID(binary.LittleEndian.Uint32(b[4:])), Length: int(length), Replay: b[12] == 1}
		b = b[forkBytes:]
	}
	if entries > 0 {
		w.step.Entries = make([]model.Entry, entries)
	}
	for i := range w.step.Entries {
		if b, err = parseEntry(b, &w.step.Entries[i]); err != nil {
			return w, fmt.Errorf("entry %d of %d: %w", i, entries, err)
		}
	}
	if helped {
		if b, err = parseHelp(b, &w.step); err != nil {
			return w, err
		}
	}
	if len(b) > 0 {
		return w, fmt.Errorf("%d bytes follow its end", len(b))
	}
	return w, nil
}

// parseHelp reads what the helper has of the sequences of a step and returns the bytes after it.
func parseHelp(b []byte, s *model.Step) (rest []byte, err error) {
	n := len(s.Entries)
	if len(b) < 4*n {
		return nil, errShort
	}
	s.Help = make([]int, n)
	for i := range s.Help {
		have := int32(binary.LittleEndian.Uint32(b[4*i:]))
		if have < model.Unhelped || int64(have) > int64(s.Entries[i].Pos) {
			return nil, fmt.Errorf("entry %d of %d: the helper has %d positions before position %d", i, n, have, s.Entries[i].Pos)
		}
		s.Help[i] = int(have)
	}
	return b[4*n:], nil
}

// parseCheckpoints reads the checkpoints of a sequence and returns the bytes after them.
func parseCheckpoints(b []byte, c *model.Checkpoints) (rest []byte, err error) {
	if len(b) < checkpointsHeader {
		return nil, errShort
	}
	c.Seq = model.SeqID(binary.LittleEndian.Uint32(b))
	n := uint64(binary.LittleEndian.Uint32(b[4:]))
	b = b[checkpointsHeader:]
	if uint64(len(b)) < 4*n {
		return nil, errShort
	}
	if n > 0 {
		c.At = make([]int, n)
	}
	for i := range c.At {
		at := binary.LittleEndian.Uint32(b[4*i:])
		if at > math.MaxInt32 || !follows(c.At[:i], int(at)) {
			return nil, fmt.Errorf("length %d", at)
		}
		c.At[i] = int(at)
	}
	return b[4*n:], nil
}

// parseEntry reads an entry and returns the bytes after it.
func parseEntry(b []byte, e *model.Entry) (rest []byte, err error) {
	if len(b) < entryHeader {
		return nil, errShort
	}
	pos, n := binary.LittleEndian.Uint32(b[4:]), uint64(binary.LittleEndian.Uint32(b[8:]))
	e.Seq, e.Want = model.SeqID(binary.LittleEndian.Uint32(b)), model.Want(b[12])
	until := binary.LittleEndian.Uint32(b[13:])
	b = b[entryHeader:]
	switch {
	case pos > math.MaxInt32:
		return nil, fmt.Errorf("position %d", pos)
	case until > math.MaxInt32:
		return nil, fmt.Errorf("up to position %d", until)
	case e.Want > model.WantAll:
		return nil, fmt.Errorf("want %d", e.Want)
	case n == 0:
		return nil, errors.New("no tokens")
	case uint64(len(b)) < 4*n:
		return nil, errShort
	}
	e.Pos, e.Until, e.Tokens = int(pos), int(until), make([]int32, n)
	for i := range e.Tokens {
		e.Tokens[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return b[4*n:], nil
}
