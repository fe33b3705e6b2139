package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
)

// Control messages are how rank 0 and the other ranks agree, over the control
// communicator, at startup and before a group is made.

// controlMessage is one control message.
type controlMessage struct {
	Kind string `json:"kind"`

	// hello and go: the group that is wanted; no: the reason for the
	// refusal.
	Epoch       uint32 `json:"epoch,omitempty"`
	Group       string `json:"group,omitempty"` // SHA-256 of the group's id and the token
	First       int    `json:"first,omitempty"`
	Piece       int    `json:"piece,omitempty"`
	Threshold   int    `json:"threshold,omitempty"`
	Why         string `json:"why,omitempty"`
	Host        string `json:"host,omitempty"`
	Coordinator string `json:"coordinator,omitempty"`

	// probe: addresses and the nonce that answers there; probed: which were
	// reached.
	Addresses []string `json:"addresses,omitempty"`
	Nonce     []byte   `json:"nonce,omitempty"`
	Reached   []bool   `json:"reached,omitempty"`
}

// The kinds of control messages.
const (
	kindHello       = "hello"       // to rank 0: I want this epoch
	kindGo          = "go"          // from rank 0: all ranks want it
	kindNo          = "no"          // from rank 0: you want something different
	kindBoot        = "boot"        // to rank 0: I have started
	kindProbe       = "probe"       // from rank 0: which of these can you reach?
	kindProbed      = "probed"      // to rank 0: I can reach these
	kindCoordinator = "coordinator" // from rank 0: this is the address
)

// The tags of the control communicator.
const (
	tagUp   = 1 // to rank 0
	tagDown = 2 // from rank 0
)

// controlSize is the maximum length of a control message: short enough that
// every network sends it eagerly.
const controlSize = 3 << 10

// sayLimit is the time limit for sending a control message.
const sayLimit = 10 * time.Second

var errStopped = errors.New("given up")

// say sends a control message; the owner calls it.
func (w *World) say(peer int, l controlMessage, stop flag) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if len(text) > controlSize {
		return fmt.Errorf("%w: a control message of %d bytes, at most %d", distributed.ErrConfig, len(text), controlSize)
	}
	b := newBox(len(text))
	copy(b.bytes(), text)
	tag := int32(tagDown)
	if peer == 0 {
		tag = tagUp
	}
	m := messages(1)
	m[0] = message{data: b.p, count: int32(len(text)), peer: int32(peer), tag: tag, state: msgPost, send: msgSend}
	switch libProgress(w.control, m, nil, stop.pointer(), false, 0, int64(sayLimit)) {
	case progressDone:
		free(b.p)
		freeMessages(m)
		return nil
	case progressStopped: // the message may be in flight, so its memory is not freed
		return errStopped
	case progressLate:
		return fmt.Errorf("%w: rank %d did not receive a control message", distributed.ErrTimeout, peer)
	}
	return lastError()
}

// inbox receives control messages. Rank 0 has one receive posted for each other
// rank; the others have one for rank 0. The owner uses it.
type inbox struct {
	w    *World
	msgs []message
}

func newInbox(w *World) *inbox {
	in := &inbox{w: w, msgs: messages(w.size)}
	for p := range w.size {
		if p == w.rank || w.rank > 0 && p > 0 {
			continue
		}
		tag := int32(tagDown)
		if w.rank == 0 {
			tag = tagUp
		}
		in.msgs[p] = message{data: newBox(controlSize).p, count: controlSize, peer: int32(p), tag: tag, state: msgPost}
	}
	return in
}

// next waits for a control message until stop is raised.
func (in *inbox) next(stop flag) (from int, l controlMessage, err error) {
	for {
		for p := range in.msgs {
			m := &in.msgs[p]
			if m.state != msgDone {
				continue
			}
			err := json.Unmarshal(m.bytes(int(m.got)), &l)
			m.state, m.count, m.got = msgPost, controlSize, 0
			if err != nil {
				return p, l, fmt.Errorf("%w: a control message of rank %d: %w", distributed.ErrBootstrap, p, err)
			}
			return p, l, nil
		}
		switch libProgress(in.w.control, in.msgs, nil, stop.pointer(), true, 0, int64(time.Hour)) {
		case progressDone:
		case progressStopped:
			return -1, l, errStopped
		case progressLate:
			return -1, l, distributed.ErrTimeout
		default:
			return -1, l, lastError()
		}
	}
}

// do makes the owner run f, and raises the flag that f receives when ctx ends.
func (w *World) do(ctx context.Context, f func(stop flag) error) error {
	stop := newFlag()
	release := context.AfterFunc(ctx, stop.raise)
	defer release()
	done := make(chan error, 1)
	if !w.owner.post(func() { done <- f(stop) }) {
		return distributed.ErrClosed
	}
	if err := <-done; !errors.Is(err, errStopped) {
		return err
	}
	return context.Cause(ctx)
}
