// Package mpi drives the MPI transport as a cluster would: by mpirun. Each rank
// is a process of its own; the tests speak to all of them and see them as
// groups in one place, as the suite of all transports wants it.
package mpi

import (
	"context"
	"errors"
	"time"

	"ringmaster/distributed"
)

// request asks a rank to do something with a group. Slices travel as places in
// one arena, so that they overlap there as they do here.
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
	Context  uint64 // 0 is one without an end
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

// setup is how a group is made.
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

// answer is what came of a request.
type answer struct {
	ID     uint64
	Rank   int // of the first message of a rank, with ID 0
	Size   int // of a child
	Text   string
	Dst    []byte
	Err    *failure
	Stats  distributed.Stats
	Lasted time.Duration
}

// failure is an error on its way between processes.
type failure struct {
	ID    uint64 // the same for the same error of a rank
	Text  string
	Op    *operation
	Peer  *distributed.PeerError
	Kinds []int  // of kinds
	Cause uint64 // an error that was given by the test, 0 for none
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

// given is, on a rank, an error that the test gave it.
type given struct{ f failure }

func (g *given) Error() string { return g.f.Text }
func (g *given) Unwrap() error {
	if g.f.Peer == nil {
		return nil
	}
	return g.f.Peer
}

// pack describes an error of a rank.
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

// remote is, in the test, an error of a rank.
type remote struct {
	text string
	is   []error
}

func (r *remote) Error() string   { return r.text }
func (r *remote) Unwrap() []error { return r.is }

// unpack makes the error that was described; cause is the test's own, if it
// gave one.
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
