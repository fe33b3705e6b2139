package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/model"
)

// Before a joining rank becomes a member, it gets the sequences that it lacks between
// steps, in pieces, over its control connection. So the first work of its epoch, for which
// all ranks wait, has little left to send. A piece is a snapshot of some positions of a
// sequence that continues the previous piece (package snapshot), with the checkpoints
// there. Its content for a position stays right while the sequence grows. A rewind lowers
// how much of the sequence counts as copied, and so does a new checkpoint. Before the next
// pieces the rank frees what the leader dropped or freed, because the budget of the rank may
// be full.
//
// Each part of a piece is one payload, little-endian:
//
//	u8  format, 6
//	u8  0 to restart without sequences; 1 for the last part of a piece, 2 for another
//	    part; 3 for a list of the sequences, after which the rank frees all others and
//	    all other checkpoints
//	u16 0
//	u32 sequence, 0 without a part
//	u64 random number drawn when it began
//	the part or the list, which has the form of the checkpoints of a step

const (
	aheadFormat = 6
	aheadHeader = 16
	// Kinds of payload.
	aheadRestart = 0
	aheadLast    = 1
	aheadPart    = 2
	aheadList    = 3
	// aheadPiece bounds the bytes of state in a piece, unless one position has more, as one
	// with a checkpoint may.
	aheadPiece = 512 << 10
	// aheadMost bounds the bytes of a payload.
	aheadMost = 1<<20 - 64
	// aheadTurn bounds the bytes that are copied between two steps, and aheadHold how long
	// the next step may wait for that, except for one piece. With long steps they decide
	// the rate of the copy.
	aheadTurn = 32 << 20
	aheadHold = 20 * time.Millisecond
	// aheadLeft is how much may be left when a rank joins.
	aheadLeft = 4 << 20
	// aheadTries is the number of turns within which the remaining bytes must reach a new
	// minimum. On a link where the sequences grow faster than they are copied, the rank
	// joins with what is left.
	aheadTries = 8
	// aheadLimit is how long a rank may take for the pieces in flight.
	aheadLimit = 30 * time.Second
)

// copied is what the leader knows about a rank that receives sequences before it joins. The
// holder of the turn uses it.
type copied struct {
	run     uint64              // see above
	lineage uint64              // of the sequences
	pieces  uint64              // payloads sent, including the one that began the copy
	have    map[model.SeqID]int // positions
	freed   bool                // the rank may have sequences or checkpoints that the leader no longer has
}

// bring sends waiting ranks the sequences that they lack, until ctx or the cluster ends.
func (l *Leader) bring(ctx context.Context) {
	for {
		r, err := l.cluster.Recruit(ctx)
		if err != nil {
			return
		}
		l.couriers.Go(func() {
			defer r.Join()
			began := time.Now()
			sent, left, err := l.copyTo(ctx, r)
			switch {
			case errors.Is(err, cluster.ErrRefused):
				slog.Warn("a rank refused the sequences sent before it joins; it gets all of them when it joins, which takes longer", "rank", r.Rank, "host", r.Host, "error", err)
			case err == nil:
				slog.Info("a rank has the sequences and joins", "rank", r.Rank, "host", r.Host, "sent_ahead", units.Bytes(sent), "remaining", units.Bytes(left), "duration", time.Since(began).Round(time.Millisecond))
			}
		})
	}
}

// copyTo copies the sequences to a rank until little is left, and returns the bytes sent
// and left. After an error the rank has none of them.
func (l *Leader) copyTo(ctx context.Context, r *cluster.Recruit) (sent, left int64, err error) {
	c := &copied{run: rand.Uint64(), have: map[model.SeqID]int{}}
	defer func() {
		if err != nil {
			l.forgetCopied(ctx, r.Rank, c)
		}
	}()
	payloads, least := [][]byte{aheadHead(aheadRestart, 0, c.run)}, int64(-1)
	for tries := 0; ; tries++ {
		for _, p := range payloads {
			if err = within(ctx, r, func(ctx context.Context) error { return r.Send(ctx, p) }); err != nil {
				return sent, left, err
			}
			sent += int64(len(p))
		}
		if tries == aheadTries {
			break
		}
		if payloads, left, err = l.nextPieces(ctx, r.Rank, c); err != nil {
			return sent, left, err
		}
		if payloads == nil {
			break
		}
		if least < 0 || left < least {
			least, tries = left, 0
		}
	}
	return sent, left, within(ctx, r, r.Flush)
}

// aheadHead returns the beginning of a payload.
func aheadHead(what byte, id model.SeqID, run uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32([]byte{aheadFormat, what, 0, 0}, uint32(id)), run)
}

// nextPieces returns the payloads of the next turn, none if little is left. left is about
// how many bytes remain after them.
func (l *Leader) nextPieces(ctx context.Context, rank int, c *copied) (payloads [][]byte, left int64, err error) {
	h := l.resident
	h.couriers.Add(1)
	defer h.couriers.Add(-1)
	if err := h.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer h.release()
	if h.staged() || h.settings.Helper {
		return nil, 0, nil // sequences do not outlive the epoch, or a helper needs none
	}
	if c.lineage == 0 {
		c.lineage, c.pieces = l.state.lineage, 1
		l.copied[rank] = c
	}
	if l.sequencesLost.Load() || l.state.lineage == 0 || l.state.lineage != c.lineage || l.state.loads != h.loads || h.rank == nil {
		return nil, 0, errors.New("the sequences were lost during the copy")
	}
	for id, tokens := range l.tokens {
		left += h.rank.StateBytes(id, c.have[id], len(tokens))
	}
	if c.freed {
		list := append(aheadHead(aheadList, 0, c.run), l.inventory()...)
		if len(list) > aheadMost {
			return nil, 0, fmt.Errorf("a list of %d sequences has %d bytes; at most %d are possible", len(l.tokens), len(list), aheadMost)
		}
		payloads, c.freed = append(payloads, list), false
		c.pieces++
	}
	if left <= aheadLeft {
		return payloads, left, nil
	}
	room, until := aheadTurn, time.Now().Add(aheadHold)
	for _, id := range slices.Sorted(maps.Keys(l.tokens)) {
		for tokens := l.tokens[id]; room > 0 && c.have[id] < len(tokens) && (payloads == nil || time.Now().Before(until)); {
			piece, to, err := l.piece(c, id, tokens)
			if err != nil {
				return nil, 0, err
			}
			for _, p := range piece {
				room, left = room-len(p), left-int64(len(p))
			}
			payloads = append(payloads, piece...)
			c.have[id] = to
			c.pieces += uint64(len(piece))
		}
	}
	return payloads, left, nil
}

// piece returns the payloads of as many of the next positions of a sequence as fit in a
// piece, and where they end.
func (l *Leader) piece(c *copied, id model.SeqID, tokens []int32) (payloads [][]byte, to int, err error) {
	rank, from := l.resident.rank, c.have[id]
	n := sort.Search(len(tokens)-from, func(n int) bool { return rank.StateBytes(id, from, from+n+1) > aheadPiece })
	to = from + max(n, 1)
	out := parts{head: aheadHead(aheadPart, id, c.run)}
	if err := rank.SnapshotFrom(&out, id, tokens[:to], from); err != nil {
		return nil, 0, err
	}
	out.payloads[len(out.payloads)-1][1] = aheadLast
	return out.payloads, to, nil
}

// parts cuts what is written into payloads that begin with head.
type parts struct {
	head     []byte
	payloads [][]byte
}

// Write implements io.Writer.
func (p *parts) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if len(p.payloads) == 0 || len(p.payloads[len(p.payloads)-1]) == aheadMost {
			p.payloads = append(p.payloads, append(make([]byte, 0, aheadPiece+aheadPiece/4), p.head...))
		}
		last := &p.payloads[len(p.payloads)-1]
		k := min(len(b), aheadMost-len(*last))
		*last, b = append(*last, b[:k]...), b[k:]
	}
	return n, nil
}

// forgetCopied forgets what a rank has, so that the rank gets everything when it joins.
func (l *Leader) forgetCopied(ctx context.Context, rank int, c *copied) {
	if l.resident.acquire(ctx) != nil {
		return
	}
	defer l.resident.release()
	if l.copied[rank] == c {
		delete(l.copied, rank)
	}
}

// within calls Send or Flush with a limit.
func within(ctx context.Context, r *cluster.Recruit, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, aheadLimit, fmt.Errorf("%s did not accept what was sent to it within %v", distributed.RankName(r.Rank, r.Host), aheadLimit))
	defer cancel()
	return do(ctx)
}

// took is what a follower received before it joined.
type took struct {
	run, pieces uint64 // pieces counts payloads
	loads       uint64 // resident.loads when it began
	sequences   map[model.SeqID][]int32
}

// Ahead implements cluster.Joiner.
func (w *Worker) Ahead(payload []byte) error {
	h := w.resident
	if !h.tryAcquire() {
		return errors.New("received a piece of a sequence while the model is being formed or closed")
	}
	defer h.release()
	if len(payload) < aheadHeader || payload[0] != aheadFormat || payload[1] > aheadList || payload[2]|payload[3] != 0 {
		return w.refuse(fmt.Errorf("a payload of %d bytes before an epoch is malformed", len(payload)))
	}
	id, run := model.SeqID(binary.LittleEndian.Uint32(payload[4:])), binary.LittleEndian.Uint64(payload[8:])
	switch {
	case h.rank == nil:
		return errors.New("received a piece of a sequence, but no model is loaded")
	case payload[1] == aheadRestart:
		h.stopEntering()
		h.rank.Forget()
		w.before, w.state = nil, state{}
		w.took = &took{run: run, pieces: 1, loads: h.loads, sequences: map[model.SeqID][]int32{}}
		return nil
	case w.took == nil || w.took.run != run || w.took.loads != h.loads:
		return w.refuse(fmt.Errorf("piece of sequence %d belongs to a copy that has not begun on this rank", id))
	}
	if payload[1] == aheadList {
		inventory, err := parseInventory(payload[aheadHeader:])
		if err == nil && h.entering != nil {
			err = fmt.Errorf("a list of sequences within a piece of sequence %d", h.entering.id)
		}
		if err != nil {
			return w.refuse(err)
		}
		h.keepOnly(w.took, inventory)
		w.took.pieces++
		return nil
	}
	p, before := piece{seq: id, first: h.entering == nil, last: payload[1] == aheadLast}, w.took.sequences[id]
	tokens, err := h.takePiece(p, payload[aheadHeader:], func(r io.Reader) ([]int32, error) {
		return h.rank.RestoreFrom(r, id, before)
	})
	if err != nil {
		return w.refuse(fmt.Errorf("received before the epoch: %w", err))
	}
	if p.last {
		w.took.sequences[id] = tokens
	}
	w.took.pieces++
	return nil
}

// refuse forgets what was received, because of err.
func (w *Worker) refuse(err error) error {
	if w.took != nil {
		w.took = nil
		w.resident.stopEntering()
		w.resident.rank.Forget()
	}
	return err
}
