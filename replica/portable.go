package replica

import (
	"errors"
	"fmt"
	"io"

	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/model/snapshot"
)

// Sequences leave and enter the model of all ranks in pieces, between steps. A sequence
// that leaves is copied only from the leader's rank, because all ranks have it. A
// sequence that enters must reach all ranks: each piece is numbered work like a step,
// with its own payload, and rank 0 then broadcasts the bytes. The leader's rank takes
// them first, so that a damaged snapshot is refused before it is sent.

// entering is a sequence that a rank is receiving.
type entering struct {
	id     model.SeqID
	sink   *snapshot.Sink
	tokens []int32 // when it is complete
}

// takePiece gives the rank the next piece of a sequence; restore reads all pieces as one
// stream. After the last it returns the sequence's tokens. The caller has the turn.
func (h *resident) takePiece(p piece, b []byte, restore func(io.Reader) ([]int32, error)) ([]int32, error) {
	if p.first {
		h.stopEntering()
		x := &entering{id: p.seq}
		x.sink = snapshot.Push(func(r io.Reader) (err error) {
			x.tokens, err = restore(r)
			return err
		})
		h.entering = x
	}
	x := h.entering
	if x == nil || x.id != p.seq {
		return nil, fmt.Errorf("piece of sequence %d arrived before its first piece", p.seq)
	}
	_, err := x.sink.Write(b)
	if err == nil && p.last {
		h.entering = nil
		err = x.sink.Close()
	}
	if err != nil {
		h.stopEntering()
		return nil, fmt.Errorf("sequence %d: %w", p.seq, err)
	}
	return x.tokens, nil
}

// takeNew is takePiece of a new sequence.
func (h *resident) takeNew(p piece, b []byte) ([]int32, error) {
	return h.takePiece(p, b, func(r io.Reader) (tokens []int32, err error) {
		err = snapshot.Each(r, func(r io.Reader) (err error) {
			tokens, err = h.rank.RestoreFrom(r, p.seq, tokens)
			return err
		})
		return tokens, err
	})
}

// stopEntering drops a sequence that was not received completely. The caller has the
// turn.
func (h *resident) stopEntering() {
	if h.entering != nil {
		h.entering.sink.Stop()
		h.entering = nil
	}
}

// receivePiece takes part in the broadcast of a piece and gives it to the rank.
func (h *resident) receivePiece(p piece) error {
	if h.helped() {
		return nil
	}
	b := make([]byte, p.bytes)
	if err := h.epoch.Group.Broadcast(h.epoch.Done, b, 0); err != nil {
		return err
	}
	_, err := h.takeNew(p, b)
	return err
}

// Export implements model.Portable.
func (l *Leader) Export(id model.SeqID, tokens []int32, from int) model.Export {
	return &leaving{l: l, id: id, tokens: tokens, from: from}
}

// leaving is a sequence that is copied from the leader's rank.
type leaving struct {
	l      *Leader
	id     model.SeqID
	tokens []int32
	from   int
	source *snapshot.Source
	began  state // of the leader
}

// Next implements model.Export. It does not wait: while the group re-forms it returns a
// model.RecoveringError.
func (x *leaving) Next() ([]byte, error) {
	l, h := x.l, x.l.resident
	if !h.acquireUnlessForming() {
		return nil, &model.RecoveringError{Cause: errors.New("the group is re-forming")}
	}
	defer h.release()
	if h.staged() {
		return nil, fmt.Errorf("sequence %d is divided among stages, and rank 0 has only its layers of it", x.id)
	}
	first := x.source == nil
	if first {
		x.began = l.state
		x.source = snapshot.Pull(func(w io.Writer) error { return h.rank.SnapshotFrom(w, x.id, x.tokens, x.from) })
	}
	// The source reads the memory of one model and lineage, so another one ends the
	// export.
	if h.rank == nil || h.loads != x.began.loads || l.state.lineage != x.began.lineage {
		return nil, &model.UnavailableError{Cause: fmt.Errorf("sequence %d was lost during the copy", x.id)}
	}
	return x.source.Next()
}

// Stop implements model.Export.
func (x *leaving) Stop() {
	if x.source != nil {
		x.source.Stop()
	}
}

// Import implements model.Portable. The sequence is lost with its epoch unless it is
// complete.
func (l *Leader) Import(id model.SeqID) model.Import { return &arriving{l: l, id: id} }

// arriving is a sequence that is sent to all ranks. It holds each piece back until it
// knows whether the piece is the last.
type arriving struct {
	l     *Leader
	id    model.SeqID
	held  []byte
	sent  int    // pieces
	epoch uint32 // in which the first was sent
}

// Write implements model.Import.
func (x *arriving) Write(b []byte) (int, error) {
	if len(b) > model.MaxPiece {
		return 0, fmt.Errorf("sequence %d: a piece of %d bytes; at most %d are possible", x.id, len(b), model.MaxPiece)
	}
	if len(x.held) > 0 {
		if _, err := x.send(false); err != nil {
			return 0, err
		}
	}
	x.held = append(x.held[:0], b...)
	return len(b), nil
}

// Close implements model.Import.
func (x *arriving) Close() ([]int32, error) {
	if len(x.held) == 0 {
		return nil, fmt.Errorf("sequence %d: no pieces: %w", x.id, snapshot.ErrDamaged)
	}
	return x.send(true)
}

// Stop implements model.Import. Followers free their part of the sequence when it is
// dropped.
func (x *arriving) Stop() {
	h := x.l.resident
	if !h.acquireUnlessForming() {
		return // it ends with the epoch
	}
	defer h.release()
	if h.entering != nil && h.entering.id == x.id {
		h.stopEntering()
	}
}

// send sends the held piece to all ranks; after the last it returns the sequence's
// tokens.
func (x *arriving) send(last bool) ([]int32, error) {
	l, h := x.l, x.l.resident
	e, err := l.cluster.Epoch()
	if err == nil && x.sent > 0 && e.Number != x.epoch {
		err = fmt.Errorf("epoch %d is over", x.epoch)
	}
	if err == nil {
		err = h.inEpoch(e)
	}
	if err != nil {
		return nil, &model.RecoveringError{Cause: err}
	}
	defer h.release()
	p := piece{seq: x.id, bytes: len(x.held), first: x.sent == 0, last: last}
	var tokens []int32
	if err = l.enter(e, model.Step{}); err == nil {
		if tokens, err = h.takeNew(p, x.held); err != nil {
			return nil, err // before it was sent
		}
		payload := l.next(work{piece: &p}).encodePiece()
		n, begun := l.cluster.Begin(e.Number, payload)
		if begun != nil {
			return nil, &model.RecoveringError{Cause: begun}
		}
		x.sent, x.epoch, l.lastSucceeded = x.sent+1, e.Number, false
		err = l.work(e, n, false, func() (cluster.Digest, error) {
			if h.helped() {
				return nil, nil // a helper gets what it lacks before the first step in which it helps
			}
			return nil, h.epoch.Group.Broadcast(h.epoch.Done, x.held, 0)
		})
	}
	if err != nil {
		_, verdict := l.interrupted(e, err)
		return nil, &model.RecoveringError{Cause: verdict}
	}
	if last {
		l.tokens[x.id] = tokens
		l.count()
	}
	return tokens, nil
}
