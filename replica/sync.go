package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"ringmaster/model"
)

// The first work of every epoch gives all ranks the leader's state. On the wire,
// little-endian:
//
//	u8  format, 3
//	u8  what became of the last step; see kept.go
//	u16 0, u32 0
//	u64 number of the last step that all ranks have run
//	u64 the sequences' lineage
//	what the last step keeps, if not all
//
// Then the ranks gather answers of 17 bytes: 1 if a rank has the leader's sequences,
// otherwise 0; and what it received of them before it joined (ahead.go), as a copy's
// number and the number of pieces, both 0 for nothing. If a rank lacks the sequences,
// rank 0 broadcasts a u64, then snapshots. After 1 comes a list of the sequences, in the form
// of the checkpoints of a step; the snapshots then have only what those ranks have not
// received of each sequence, and the ranks answer again. After 0 the snapshots have all of
// each sequence, because the ranks refused the rest, received something else than was sent,
// or received nothing.

const (
	beginningFormat = 3
	beginningBytes  = 24
	// pieceBytes bounds the bytes of one broadcast.
	pieceBytes = 1 << 20
	// listBytes bounds the bytes of a list of sequences that a rank reads.
	listBytes = 16 << 20
	// endOfSequences takes the place of a sequence's number.
	endOfSequences = ^uint64(0)

	// What rank 0 sends to ranks that are not warm.
	whole     = 0
	continued = 1
	// answerBytes is the length of an answer.
	answerBytes = 17
)

// answer is what a rank reports at the beginning of an epoch.
type answer struct {
	warm        bool   // it has the leader's sequences
	run, pieces uint64 // of what it received before it joined
}

// state identifies the sequences of a rank: those that exist after steps 1 to number of a
// lineage. Two ranks with the same state have the same sequences.
type state struct {
	lineage uint64 // random, drawn when a lineage begins; 0 before the first
	number  uint64 // of the last step whose commit or abandonment is known
	loads   uint64 // resident.loads when the lineage began
}

// beginning is the payload.
type beginning struct {
	committed bool
	kept      []int // as in a work
	number    uint64
	lineage   uint64
}

func (s beginning) encode() []byte {
	b := make([]byte, 8, beginningBytes)
	b[0], b[1] = beginningFormat, fate(s.committed, s.kept)
	b = binary.LittleEndian.AppendUint64(b, s.number)
	b = binary.LittleEndian.AppendUint64(b, s.lineage)
	return appendKept(b, s.committed, s.kept)
}

// decodeBeginning reads a payload; ok is false if it is of another format.
func decodeBeginning(b []byte) (s beginning, ok bool, err error) {
	if len(b) == 0 || b[0] != beginningFormat {
		return s, false, nil
	}
	if len(b) < beginningBytes || binary.LittleEndian.Uint16(b[2:]) != 0 || binary.LittleEndian.Uint32(b[4:]) != 0 {
		return s, true, fmt.Errorf("%d bytes that begin an epoch are malformed", len(b))
	}
	committed, kept, rest, err := parseFate(b[1], b[beginningBytes:])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow their end", len(rest))
	}
	if err != nil {
		return s, true, fmt.Errorf("%d bytes that begin an epoch are malformed: %w", len(b), err)
	}
	return beginning{committed, kept, binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}, true, nil
}

// follow gives a follower the leader's state. The caller has the turn.
func (w *Worker) follow(s beginning) error {
	h := w.resident
	h.stopEntering()
	before := w.before
	w.before = nil
	if before != nil && before.number == s.number && w.state.lineage == s.lineage && w.state.loads == h.loads {
		if s.committed {
			if err := h.commitKept(before.step, s.kept); err != nil {
				return err
			}
		}
		w.state.number = s.number
	}
	// A helper gets what it lacks of a sequence before the first step in which it helps.
	warm := h.helped() || w.state == state{s.lineage, s.number, h.loads}
	t := w.took
	w.took = nil
	mine := answer{warm: warm}
	if !warm {
		w.state = state{} // until everything has arrived
		if t != nil && t.loads == h.loads {
			mine.run, mine.pieces = t.run, t.pieces
		} else {
			h.rank.Forget()
		}
	}
	all, err := h.agree(mine)
	if err != nil {
		return err
	}
	if anyLacks(all) {
		if err := h.receive(mine.warm, t); err != nil {
			return err
		}
	}
	w.state = state{s.lineage, s.number, h.loads}
	return nil
}

// agree sends all ranks this rank's answer, and returns all answers [size].
func (h *resident) agree(a answer) ([]answer, error) {
	g := h.epoch.Group
	mine, all := make([]byte, 1, answerBytes), make([]byte, g.Size()*answerBytes)
	if a.warm {
		mine[0] = 1
	}
	mine = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(mine, a.run), a.pieces)
	if err := g.AllGather(h.epoch.Done, all, mine); err != nil {
		return nil, err
	}
	out := make([]answer, g.Size())
	for i := range out {
		b := all[i*answerBytes:]
		out[i] = answer{b[0] == 1, binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])}
	}
	return out, nil
}

// anyLacks reports whether a rank lacks the leader's sequences.
func anyLacks(all []answer) bool {
	return len(all) > 1 && slices.ContainsFunc(all, func(a answer) bool { return !a.warm })
}

// send broadcasts the sequences with their tokens from rank 0, and before them the inventory
// if they continue others. It sends what follows the positions in have, or all of a sequence
// that have lacks.
func (h *resident) send(how uint64, inventory []byte, sequences map[model.SeqID][]int32, have map[model.SeqID]int) error {
	if err := h.tell(how); err != nil {
		return err
	}
	out := &pieces{h: h, buf: make([]byte, 0, pieceBytes)}
	if how == continued {
		if _, err := out.Write(inventory); err != nil {
			return err
		}
		if err := out.end(); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sequences)) {
		if err := h.tell(uint64(id)); err != nil {
			return err
		}
		if err := h.rank.SnapshotFrom(out, id, sequences[id], have[id]); err != nil {
			return err
		}
		if err := out.end(); err != nil {
			return err
		}
	}
	return h.tell(endOfSequences)
}

// receive takes the sequences that rank 0 sends, which may continue those received
// before. A warm rank only takes part in the broadcasts.
func (h *resident) receive(warm bool, t *took) error {
	how, err := h.take()
	if err == nil && how == continued {
		var refused error
		if !warm && t == nil {
			refused = errors.New("the leader continues sequences that this rank does not have")
		}
		if refused, err = h.receiveRest(warm || refused != nil, t, refused); err != nil {
			return err
		}
		if refused != nil {
			slog.Warn("this rank refused the rest of the sequences; it requests all of them", "error", refused)
		}
		var all []answer
		if all, err = h.agree(answer{warm: refused == nil}); err != nil || !anyLacks(all) {
			return err
		}
		warm = refused == nil
		how, err = h.take()
	}
	if err != nil {
		return err
	}
	if how != whole {
		return fmt.Errorf("the leader sends sequences in form %d, which this build does not know", how)
	}
	if !warm {
		h.rank.Forget()
	}
	return h.receiveAll(!warm)
}

// receiveRest frees what the rank received before and the leader no longer has, and takes
// what continues the other sequences. After an error, or if before is one, it reads and
// discards the rest.
func (h *resident) receiveRest(idle bool, t *took, before error) (refused, err error) {
	refused = before
	head := &pieces{h: h}
	list, err := io.ReadAll(io.LimitReader(head, listBytes))
	if err == nil {
		_, err = io.Copy(io.Discard, head)
	}
	if err != nil {
		return nil, err
	}
	inventory, invalid := parseInventory(list)
	if !idle && refused == nil {
		if refused = invalid; refused == nil {
			h.keepOnly(t, inventory)
		}
	}
	for {
		n, err := h.take()
		if err != nil || n == endOfSequences {
			return refused, err
		}
		id := model.SeqID(n)
		in := &pieces{h: h}
		if !idle && refused == nil {
			refused = h.receiveOne(in, id, t.sequences[id], inventory[id])
		}
		// All bytes are read even after a failure, because the other ranks wait in the
		// broadcasts.
		if _, err := io.Copy(io.Discard, in); err != nil {
			return nil, errors.Join(refused, err)
		}
	}
}

// receiveOne takes what continues a sequence, and checks that the sequence then has the
// leader's checkpoints.
func (h *resident) receiveOne(in io.Reader, id model.SeqID, before []int32, at []int) error {
	_, err := h.rank.RestoreFrom(in, id, before)
	if have := h.rank.Checkpoints(id); err == nil && !slices.Equal(have, at) {
		err = fmt.Errorf("it has checkpoints at %d here, but at %d there", have, at)
	}
	if err != nil {
		return fmt.Errorf("sequence %d from the leader: %w", id, err)
	}
	return nil
}

// receiveAll takes the complete sequences that rank 0 sends; if they are not needed, it
// only takes part in the broadcasts.
func (h *resident) receiveAll(needed bool) error {
	for {
		id, err := h.take()
		if err != nil || id == endOfSequences {
			return err
		}
		in := &pieces{h: h}
		var failed error
		if needed {
			_, failed = h.rank.Restore(in, model.SeqID(id))
		}
		// All bytes are read even after a failure, because the other ranks wait in the
		// broadcasts.
		if _, err := io.Copy(io.Discard, in); err != nil {
			return errors.Join(failed, err)
		}
		if failed != nil {
			return fmt.Errorf("sequence %d from the leader: %w", id, failed)
		}
	}
}

// tell broadcasts a number from rank 0.
func (h *resident) tell(n uint64) error {
	return h.epoch.Group.Broadcast(h.epoch.Done, binary.LittleEndian.AppendUint64(nil, n), 0)
}

// take receives a number from rank 0.
func (h *resident) take() (uint64, error) {
	var b [8]byte
	err := h.epoch.Group.Broadcast(h.epoch.Done, b[:], 0)
	return binary.LittleEndian.Uint64(b[:]), err
}

// pieces is a stream of bytes from rank 0 to all others: alternating lengths and bytes,
// ended by a length of 0. Rank 0 writes, the others read.
type pieces struct {
	h     *resident
	buf   []byte // written and not sent, or received and not read
	ended bool
}

// Write implements io.Writer.
func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k := min(len(b), cap(p.buf)-len(p.buf))
		p.buf = append(p.buf, b[:k]...)
		b, n = b[k:], n+k
		if len(p.buf) == cap(p.buf) {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *pieces) flush() error {
	if err := p.h.tell(uint64(len(p.buf))); err != nil {
		return err
	}
	if len(p.buf) == 0 {
		return nil
	}
	err := p.h.epoch.Group.Broadcast(p.h.epoch.Done, p.buf, 0)
	p.buf = p.buf[:0]
	return err
}

// end sends the remaining bytes and the end of the stream.
func (p *pieces) end() error {
	if len(p.buf) > 0 {
		if err := p.flush(); err != nil {
			return err
		}
	}
	return p.flush()
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.buf) == 0 {
		if p.ended {
			return 0, io.EOF
		}
		n, err := p.h.take()
		switch {
		case err != nil:
			return 0, err
		case n > pieceBytes:
			return 0, fmt.Errorf("a piece of %d bytes from the leader; at most %d are possible", n, pieceBytes)
		case n == 0:
			p.ended = true
			continue
		}
		p.buf = make([]byte, n)
		if err := p.h.epoch.Group.Broadcast(p.h.epoch.Done, p.buf, 0); err != nil {
			p.buf = nil
			return 0, err
		}
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}
