// Package transport is the recipe of CONTRIBUTING.md for a transport, followed:
// the smallest driver on real connections, in one file, held to the contract.
package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// pipes is a distributed.Transport of goroutines as ranks, with a net.Pipe between each
// pair.
type pipes struct {
	mu   sync.Mutex
	ends map[string]chan net.Conn // by group and pair: the end of the higher rank
}

var _ distributed.Transport = (*pipes)(nil)

func (*pipes) Name() string                        { return "pipes" }
func (*pipes) Listen(host string) (string, error)  { return host + ":0", nil }
func (*pipes) Probe(context.Context, string) error { return nil }
func (*pipes) Close() error                        { return nil }

// Connect is all that joins a transport to Group: Form calls the bring-up.
func (n *pipes) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	return distributed.Form(ctx, l, func(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
		d := &driver{net: n, rank: l.Rank, conns: make([]net.Conn, l.Size)}
		for p := range d.conns {
			if p == l.Rank {
				continue
			}
			var err error
			if d.conns[p], err = n.join(ctx, &l, p); err != nil {
				d.Abort(err)
				return nil, fmt.Errorf("%w: rank %d has not joined: %w", distributed.ErrBootstrap, p, err)
			}
		}
		return d, nil
	})
}

// join connects two ranks: the lower one makes the pipe.
func (n *pipes) join(ctx context.Context, l *distributed.Link, p int) (net.Conn, error) {
	key := fmt.Sprintf("%s %d %x %d %d", l.GroupID, l.Epoch, l.Token, min(l.Rank, p), max(l.Rank, p))
	n.mu.Lock()
	if n.ends[key] == nil {
		n.ends[key] = make(chan net.Conn, 1)
	}
	end := n.ends[key]
	n.mu.Unlock()
	if l.Rank < p {
		mine, other := net.Pipe()
		end <- other
		return mine, nil
	}
	select {
	case c := <-end:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// driver is one rank. In every collective operation each rank sends each other
// one frame, maybe an empty one, so ranks that do different things find out.
type driver struct {
	net     *pipes
	rank    int
	conns   []net.Conn // [size], nil at this rank
	working sync.WaitGroup
	results chan result
	left    int
	parts   [][]byte // [size] what has come for a reduction
	failed  bool     // Wait has returned an error
}

// result is the end of one direction of a connection.
type result struct {
	peer  int
	heard time.Time // when a frame began
	err   error
}

// Start gives each direction that the operation needs a goroutine.
func (d *driver) Start(op *distributed.Op) error {
	n := len(d.conns)
	d.results, d.left, d.parts, d.failed = make(chan result, 2*n), 0, make([][]byte, n), false
	for p, c := range d.conns {
		if c == nil {
			continue
		}
		_ = c.SetDeadline(op.Deadline) // of a closed pipe, reads and writes tell
		if !op.Kind.Message() || op.To == p {
			d.run(p, func() (time.Time, error) { return time.Time{}, send(c, op, d.outgoing(op, p)) })
		}
		if !op.Kind.Message() || op.From == p {
			d.parts[p] = d.incoming(op, p)
			d.run(p, func() (time.Time, error) { return receive(c, op, d.parts[p]) })
		}
	}
	return nil
}

func (d *driver) run(peer int, work func() (time.Time, error)) {
	d.left++
	d.working.Go(func() {
		heard, err := work()
		d.results <- result{peer, heard, err}
	})
}

// Wait ends with the last direction, or with the first that fails.
func (d *driver) Wait(op *distributed.Op) (t distributed.Timing, _ error) {
	if d.failed {
		d.working.Wait()
		return t, distributed.ErrClosed
	}
	for ; d.left > 0; d.left-- {
		r := <-d.results
		if r.heard.After(t.Heard) {
			t.Heard = r.heard
		}
		if r.err != nil {
			d.failed = true
			return t, d.blame(r)
		}
	}
	d.finish(op)
	return t, nil
}

// blame names the peer of a failure; of several that are late, the first.
func (d *driver) blame(r result) error {
	switch {
	case errors.Is(r.err, distributed.ErrDesync):
		return &distributed.Suspicion{Peer: r.peer, Err: r.err}
	case !errors.Is(r.err, os.ErrDeadlineExceeded):
		return &distributed.Suspicion{Peer: r.peer, Err: fmt.Errorf("%w: %w", distributed.ErrPeerGone, r.err)}
	}
	d.working.Wait() // the deadline is that of all
	for d.left--; d.left > 0; d.left-- {
		if other := <-d.results; other.err != nil {
			r.peer = min(r.peer, other.peer)
		}
	}
	return &distributed.Suspicion{Peer: r.peer, Err: fmt.Errorf("%w: rank %d", distributed.ErrTimeout, r.peer)}
}

// outgoing is what a peer gets; incoming is where that of a peer goes.
func (d *driver) outgoing(op *distributed.Op, peer int) []byte {
	switch op.Kind {
	case distributed.AllGatherV:
		return part(op, d.rank, op.Dst)
	case distributed.ReduceScatter:
		return part(op, peer, op.Src)
	case distributed.Gather:
		if peer != op.Root {
			return nil
		}
	case distributed.Broadcast:
		if d.rank == op.Root {
			return op.Dst
		}
	}
	return op.Src
}

func (d *driver) incoming(op *distributed.Op, peer int) []byte {
	switch op.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin, distributed.ReduceScatter:
		return make([]byte, len(op.Dst))
	case distributed.AllGather, distributed.AllGatherV, distributed.Agree:
		return part(op, peer, op.Dst)
	case distributed.Gather:
		if d.rank == op.Root {
			return part(op, peer, op.Dst)
		}
	case distributed.Broadcast:
		if peer == op.Root {
			return op.Dst
		}
	case distributed.Recv, distributed.SendRecv:
		return op.Dst
	}
	return nil
}

// finish does what this rank can do alone when everything has come.
func (d *driver) finish(op *distributed.Op) {
	with := map[distributed.Kind]reduce.Op{distributed.AllMax: reduce.Max, distributed.AllMin: reduce.Min}[op.Kind]
	switch op.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin:
		d.parts[d.rank] = op.Src
		reduce.Reduce(with, op.DType, op.Dst, d.parts...)
	case distributed.ReduceScatter:
		d.parts[d.rank] = part(op, d.rank, op.Src)
		reduce.Reduce(reduce.Sum, op.DType, op.Dst, d.parts...)
	case distributed.AllGather, distributed.Agree:
		copy(part(op, d.rank, op.Dst), op.Src)
	case distributed.Gather:
		if d.rank == op.Root {
			copy(part(op, d.rank, op.Dst), op.Src)
		}
	}
}

func part(op *distributed.Op, rank int, all []byte) []byte {
	from, to := op.Part(rank)
	return all[from:to]
}

// A frame is the length of a text, the text that says which operation it is of,
// and the data. Both sides know its length.
func send(c net.Conn, op *distributed.Op, data []byte) error {
	text := describe(op, len(op.Src))
	head := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	n, err := c.Write(head)
	if err == nil && len(data) > 0 { // a pipe's empty write waits for a read
		var m int
		m, err = c.Write(data)
		n += m
	}
	op.Sent(int64(n))
	return err
}

func receive(c net.Conn, op *distributed.Op, data []byte) (heard time.Time, err error) {
	var head [4]byte
	if _, err = io.ReadFull(c, head[:]); err != nil {
		return heard, err
	}
	heard = time.Now()
	theirs := make([]byte, min(binary.LittleEndian.Uint32(head[:]), 1<<16))
	if _, err = io.ReadFull(c, theirs); err != nil {
		return heard, err
	}
	if ours := describe(op, len(op.Dst)); !bytes.Equal(theirs, []byte(ours)) {
		return heard, fmt.Errorf("%w: it does %s, this rank %s", distributed.ErrDesync, theirs, ours)
	}
	n, err := io.ReadFull(c, data)
	op.Received(int64(len(head) + len(theirs) + n))
	return heard, err
}

// describe is the same on both sides of a frame if they do the same. n is the
// length of a message.
func describe(op *distributed.Op, n int) string {
	if op.Kind.Message() {
		return fmt.Sprintf("send of %d bytes", n)
	}
	if op.Sizes == nil {
		n = max(len(op.Src), len(op.Dst))
	} else {
		n = 0
		for _, size := range op.Sizes {
			n += size
		}
	}
	return fmt.Sprintf("%v #%d of %d bytes of %v, root %d", op.Kind, op.Seq, n, op.DType, op.Root)
}

// Abort closes the pipes: everybody on them gets an error.
func (d *driver) Abort(error) { _ = d.Close() }

func (d *driver) Close() error {
	for _, c := range d.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	return nil
}

func (d *driver) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	return d.net.Connect(ctx, c.Link)
}

func (d *driver) Describe() distributed.Description {
	return distributed.Description{Kind: "pipes", Topology: fmt.Sprintf("%d goroutines", len(d.conns))}
}
