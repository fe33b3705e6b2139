package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/parallel"
)

// The leader examines a running group between steps: ranks compute checksums of parts of
// the model, their own and another rank's, and send each other known data. A task is
// numbered work like a step, with the payload
//
//	u8  format, 5
//	u8  as of a step
//	u16 0, u32 0
//	u64 number, among those of steps
//	what the step before keeps, if not all
//	the task as JSON
//
// It changes no sequence. At the end all ranks exchange their findings.

// Task is what the ranks do at the same time.
type Task struct {
	// If Links is nil, Piece is the part of the model to sum. Routed experts are summed by
	// their owner and the next rank, or with Everyone by all ranks; all ranks sum other
	// weights.
	Piece    model.Piece `json:"piece"`
	Everyone bool        `json:"everyone,omitempty"`
	Links    *Traffic    `json:"links,omitempty"`
}

// Traffic is data from one rank to another: messages with known content, which the
// receiver compares, and then an answer. Ranks are those of the epoch's group.
type Traffic struct {
	From     int    `json:"from"`
	To       int    `json:"to"`
	Bytes    int    `json:"bytes"`    // of a message
	Messages int    `json:"messages"` // at most
	Echo     bool   `json:"echo"`     // each message is sent back
	Seed     uint64 `json:"seed"`
}

// Bounds of a task.
const (
	examineFormat = 5
	taskHeader    = 16
	// MostMessage is the maximum number of bytes of a message of Traffic.
	MostMessage = 1 << 20
	// MostMessages is the maximum number of messages of Traffic.
	MostMessages = 1 << 14
	// trafficLimit is how long the messages of a task may take. It is much longer than an
	// examination plans for, and shorter than the time limit of a step.
	trafficLimit = 30 * time.Second
	mostFound    = 512 << 10 // bytes of one rank's findings
)

// Finding is the result of one rank.
type Finding struct {
	Rank  int         `json:"rank"` // of the world
	Error string      `json:"error,omitempty"`
	Sums  []model.Sum `json:"sums,omitempty"`
	// With Traffic: bytes that differ at the receiver, and at the sender for messages that
	// were sent back.
	Corrupt int64 `json:"corrupt,omitempty"`
	// At the sender: the time from the first message to the answer to the last, and with
	// Echo each round trip.
	Took        time.Duration   `json:"took,omitempty"`
	Trips       []time.Duration `json:"trips,omitempty"`
	Retransmits int64           `json:"retransmits"` // segments retransmitted meanwhile; -1 if unknown
}

// check returns an error for a task that no rank could do. size is the size of the group.
func (t Task) check(size int) error {
	x := t.Links
	switch {
	case x == nil && (t.Piece.From < 0 || t.Piece.To < t.Piece.From || t.Piece.To-t.Piece.From > model.MostPiece):
		return fmt.Errorf("a task with the invalid piece %+v", t.Piece)
	case x == nil:
		return nil
	case x.From < 0 || x.From >= size || x.To < 0 || x.To >= size || x.From == x.To:
		return fmt.Errorf("a task with data from rank %d to rank %d in a group of %d", x.From, x.To, size)
	case x.Bytes < 1 || x.Bytes > MostMessage || x.Messages < 1 || x.Messages > MostMessages:
		return fmt.Errorf("a task with %d messages of %d bytes; at most %d of %d are possible", x.Messages, x.Bytes, MostMessages, MostMessage)
	case x.Echo && x.Messages > 256:
		return fmt.Errorf("a task with %d round trips; at most 256 are possible", x.Messages)
	}
	return nil
}

// encodeTask returns the payload of a task.
func (w work) encodeTask() []byte {
	b := make([]byte, 8, 256)
	b[0], b[1] = examineFormat, fate(w.committed, w.kept)
	b = binary.LittleEndian.AppendUint64(b, w.number)
	b = appendKept(b, w.committed, w.kept)
	text, err := json.Marshal(w.task)
	if err != nil {
		panic(fmt.Sprintf("replica: %v", err)) // plain fields only
	}
	return append(b, text...)
}

// parseTask is parseWork for a task.
func parseTask(b []byte) (w work, err error) {
	if len(b) < taskHeader {
		return w, errShort
	}
	committed, kept, text, err := parseFate(b[1], b[taskHeader:])
	if err != nil {
		return w, err
	}
	if binary.LittleEndian.Uint16(b[2:]) != 0 || binary.LittleEndian.Uint32(b[4:]) != 0 {
		return w, errors.New("a task has flags")
	}
	w = work{committed: committed, kept: kept, number: binary.LittleEndian.Uint64(b[8:]), task: &Task{}}
	if err := json.Unmarshal(text, w.task); err != nil {
		return work{}, fmt.Errorf("a task: %w", err)
	}
	if !bytes.Equal(w.encodeTask(), b) {
		return work{}, errors.New("a task has a form that this build would not write")
	}
	if err := w.task.check(1 << 8); err != nil {
		return work{}, err
	}
	return w, nil
}

// Extent returns the extent of the model, which limits a Piece, and the placement of the
// epoch. Any goroutine may call it; it waits for a running step.
func (l *Leader) Extent() (model.Extent, parallel.Placement, error) {
	e, err := l.cluster.Epoch()
	if err == nil {
		err = l.resident.inEpoch(e)
	}
	if err != nil {
		return model.Extent{}, nil, &model.RecoveringError{Cause: err}
	}
	defer l.resident.release()
	return l.resident.rank.Extent(), l.resident.settings.Placement, nil
}

// Examine makes all ranks do a task between two steps. It returns the findings [members]
// and their epoch. The goroutine that runs steps calls it. If the epoch has ended, the
// error is a model.RecoveringError, and the next step is as after any loss.
func (l *Leader) Examine(t Task) ([]Finding, uint32, error) {
	h := l.resident
	e, err := l.cluster.Epoch()
	if err == nil {
		err = h.inEpoch(e)
	}
	if err != nil {
		return nil, e.Number, &model.RecoveringError{Cause: err}
	}
	defer h.release()
	if err := t.check(e.Group.Size()); err != nil {
		return nil, e.Number, err
	}
	var found []Finding
	if err = l.enter(e, model.Step{}); err == nil {
		n, begun := l.cluster.Begin(e.Number, l.next(work{task: &t}).encodeTask())
		if begun != nil {
			return nil, e.Number, &model.RecoveringError{Cause: begun}
		}
		l.lastSucceeded = false
		err = l.work(e, n, false, func() (cluster.Digest, error) {
			found, err = h.examine(t)
			return nil, err
		})
	}
	if err != nil {
		_, verdict := l.interrupted(e, err)
		return nil, e.Number, &model.RecoveringError{Cause: verdict}
	}
	return found, e.Number, nil
}

// examine does this rank's part of a task and returns all findings [members]. The caller
// has the turn. An error comes from the group.
func (h *resident) examine(t Task) ([]Finding, error) {
	g := h.epoch.Group
	if err := t.check(g.Size()); err != nil {
		return nil, err
	}
	if err := h.rank.Settle(); err != nil { // the helper may still send, and the group is in use
		return nil, err
	}
	mine := Finding{Rank: g.Rank(), Retransmits: -1}
	if h.epoch.Members != nil {
		mine.Rank = h.epoch.Members[g.Rank()]
	}
	if t.Links != nil {
		if err := h.traffic(*t.Links, &mine); err != nil {
			return nil, err
		}
	} else {
		for _, p := range h.pieces(t) {
			sums, err := h.rank.Examine(p)
			if err != nil { // the others wait for this rank's finding
				mine.Sums, mine.Error = nil, err.Error()
				break
			}
			mine.Sums = append(mine.Sums, sums...)
		}
	}
	return h.exchange(mine)
}

// pieces returns the parts of a task's piece that this rank examines.
func (h *resident) pieces(t Task) (out []model.Piece) {
	p, size, rank := t.Piece, h.epoch.Group.Size(), h.epoch.Group.Rank()
	if p.Layer < 0 || t.Everyone {
		return []model.Piece{p}
	}
	of := []int{rank}
	if size > 1 {
		of = append(of, (rank+size-1)%size)
	}
	for _, r := range of {
		own := h.settings.Placement[r].Experts
		if x := (model.Piece{Layer: p.Layer, From: max(p.From, own.Start), To: min(p.To, own.End), Seed: p.Seed}); x.From < x.To {
			out = append(out, x)
		}
	}
	return out
}

// exchange gathers the findings of all ranks [members].
func (h *resident) exchange(mine Finding) ([]Finding, error) {
	g := h.epoch.Group
	text, err := json.Marshal(mine)
	if err != nil || len(text) > mostFound {
		text, _ = json.Marshal(Finding{Rank: mine.Rank, Error: fmt.Sprintf("its finding has %d bytes, more than a message can hold", len(text))})
	}
	lengths := make([]byte, 4*g.Size())
	if err := g.AllGather(h.epoch.Done, lengths, binary.LittleEndian.AppendUint32(nil, uint32(len(text)))); err != nil {
		return nil, err
	}
	sizes, total, before := make([]int, g.Size()), 0, 0
	for r := range sizes {
		sizes[r] = int(binary.LittleEndian.Uint32(lengths[4*r:]))
		if sizes[r] > mostFound {
			return nil, fmt.Errorf("rank %d announces a finding of %d bytes; at most %d are possible", r, sizes[r], mostFound)
		}
		if r < g.Rank() {
			before += sizes[r]
		}
		total += sizes[r]
	}
	all := make([]byte, total)
	copy(all[before:], text)
	if err := g.AllGatherV(h.epoch.Done, all, sizes); err != nil {
		return nil, err
	}
	if g.Rank() != 0 {
		return nil, nil
	}
	found := make([]Finding, g.Size())
	for r, n := range sizes {
		if err := json.Unmarshal(all[:n], &found[r]); err != nil {
			found[r] = Finding{Error: fmt.Sprintf("its finding did not arrive completely: %v", err)}
		}
		found[r].Rank = r
		if h.epoch.Members != nil {
			found[r].Rank = h.epoch.Members[r]
		}
		all = all[n:]
	}
	return found, nil
}

// contents is the source of messages. Message i has the bytes from an offset that depends
// on i, so that a repeated or misplaced message is found.
type contents struct {
	bytes []byte // two messages long
	each  int
}

func newContents(x Traffic) contents {
	c := contents{make([]byte, 2*x.Bytes), x.Bytes}
	r := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), x.Seed)))
	_, _ = r.Read(c.bytes) // never fails
	return c
}

// message returns the content of message i.
func (c contents) message(i int) []byte { return c.bytes[i*61%c.each:][:c.each] }

// corrupt returns how many bytes of a message differ from message i.
func (c contents) corrupt(got []byte, i int) (n int64) {
	want := c.message(i)
	if bytes.Equal(got, want) {
		return 0
	}
	for k := range got {
		if got[k] != want[k] {
			n++
		}
	}
	return n
}

// traffic does this rank's part of the messages between two ranks. An error comes from the
// group.
func (h *resident) traffic(x Traffic, mine *Finding) error {
	g := h.epoch.Group
	if r := g.Rank(); r != x.From && r != x.To {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(h.epoch.Done, trafficLimit, fmt.Errorf("%d messages of %d bytes from rank %d to rank %d took longer than %v: %w",
		x.Messages, x.Bytes, x.From, x.To, trafficLimit, distributed.ErrTimeout))
	defer cancel()
	c, buf := newContents(x), make([]byte, x.Bytes)
	if g.Rank() == x.To {
		for i := range x.Messages {
			if err := g.Recv(ctx, buf, x.From); err != nil {
				return err
			}
			mine.Corrupt += c.corrupt(buf, i)
			if x.Echo {
				if err := g.Send(ctx, c.message(i), x.From); err != nil {
					return err
				}
			}
		}
		return g.Send(ctx, buf[:1], x.From)
	}
	before := g.Retransmits(x.To)
	began := time.Now()
	for i := range x.Messages {
		sent := time.Now()
		if err := g.Send(ctx, c.message(i), x.To); err != nil {
			return err
		}
		if x.Echo {
			if err := g.Recv(ctx, buf, x.To); err != nil {
				return err
			}
			mine.Trips = append(mine.Trips, time.Since(sent))
			mine.Corrupt += c.corrupt(buf, i)
		}
	}
	if err := g.Recv(ctx, buf[:1], x.To); err != nil {
		return err
	}
	mine.Took = time.Since(began)
	slices.Sort(mine.Trips)
	if after := g.Retransmits(x.To); before >= 0 && after >= 0 {
		mine.Retransmits = after - before
	}
	return nil
}
