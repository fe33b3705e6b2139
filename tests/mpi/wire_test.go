// Package mpi drives the MPI transport the way a cluster does: with mpirun.
// Each rank is a process of its own; the tests communicate with all of them and
// present them as groups in one process, which is what the shared suite of all
// transports expects.
package mpi

import (
	"context"
	"errors"
	"time"

	"ringmaster/distributed"
)

// request asks a rank to do something with a group. Slices are sent as places
// in one arena, so that on the rank they overlap as they do in the test.
type request struct {
	ID       uint64
	Do       string
	Group    int
	Epoch    uint32
	Setup    setup
	Arena    []byte
	Dst, Src place
	DType    uint8
	From, To int
	Sizes    []int
	Context  uint64 // 0 is a context that never ends
	Cause    failure
	Token    []byte
	Count    int

	Color, Key int
	Address    string
}

// place is a slice of the arena.
type place struct{ At, Len int }

func (p place) of(arena []byte) []byte {
	if p.Len == 0 {
		return nil
	}
	return arena[p.At : p.At+p.Len]
}

// setup describes how a group is made.
type setup struct {
	Size         int
	OpTimeout    time.Duration
	Limit        time.Duration // for Connect
	Threshold    int
	Spin         time.Duration
	First, Piece int
	GroupID      string
	Addrs        []string
}

// answer is the result of a request.
type answer struct {
	ID     uint64
	Rank   int // in the first message of a rank, which has ID 0, and in a child
	Size   int // of a child
	Text   string
	Dst    []byte
	Err    *failure
	Stats  distributed.Stats
	Lasted time.Duration
}

// failure is an error in the form in which processes exchange it.
type failure struct {
	ID    uint64 // the same error of a rank always has the same ID
	Text  string
	Op    *operation
	Peer  *distributed.PeerError
	Kinds []int  // indices into kinds
	Cause uint64 // the number of an error that the test gave, 0 for none
}

type operation struct {
	Op, Addr   string
	Seq        uint64
	Rank, Peer int
	World      []int
	Elapsed    time.Duration
	Err        string
}

var kinds = []error{distributed.ErrConfig, distributed.ErrUnavailable, distributed.ErrBootstrap, distributed.ErrTimeout,
	distributed.ErrPeerGone, distributed.ErrDesync, distributed.ErrBusy, distributed.ErrClosed, distributed.ErrArgument,
	context.Canceled, context.DeadlineExceeded}

// given is an error that the test gave a rank, as the rank sees it.
type given struct{ f failure }

func (g *given) Error() string { return g.f.Text }
func (g *given) Unwrap() error {
	if g.f.Peer == nil {
		return nil
	}
	return g.f.Peer
}

// pack converts an error of a rank into a failure.
func pack(err error) *failure {
	f := &failure{Text: err.Error()}
	var op *distributed.OpError
	if errors.As(err, &op) {
		f.Op = &operation{op.Op, op.Addr, op.Seq, op.Rank, op.Peer, op.World, op.Elapsed, op.Err.Error()}
	}
	errors.As(err, &f.Peer)
	for i, k := range kinds {
		if errors.Is(err, k) {
			f.Kinds = append(f.Kinds, i)
		}
	}
	var g *given
	if errors.As(err, &g) {
		f.Cause = g.f.Cause
	}
	return f
}

// remote is an error of a rank, as the test sees it.
type remote struct {
	text string
	is   []error
}

func (r *remote) Error() string   { return r.text }
func (r *remote) Unwrap() []error { return r.is }

// unpack converts a failure back into an error; cause is the test's own error,
// if it gave one.
func unpack(f *failure, cause error) error {
	r := &remote{text: f.Text}
	if cause != nil {
		r.is = append(r.is, cause)
	} else if f.Peer != nil {
		r.is = append(r.is, f.Peer)
	}
	if o := f.Op; o != nil {
		r.is = append(r.is, &distributed.OpError{Op: o.Op, Seq: o.Seq, Rank: o.Rank, Peer: o.Peer, World: o.World, Addr: o.Addr, Elapsed: o.Elapsed, Err: errors.New(o.Err)})
	}
	for _, k := range f.Kinds {
		r.is = append(r.is, kinds[k])
	}
	return r
}
