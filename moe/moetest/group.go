// Package moetest has a group of ranks within one process, for tests of what is
// computed over a group: the contract of package distributed in shared memory,
// as lazy as it allows. An operation takes place when the last rank waits for
// it, and until then its destination holds poison; a rank that reads early, or
// changes what it gave, gets a wrong result.
package moetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/x448/float16"

	"ringmaster/distributed"
)

// Group is one rank of a group of goroutines. It can AllSum Float16 and Float32,
// gather and wait at a Barrier; the other operations fail with ErrUnavailable.
type Group struct {
	hub   *hub
	rank  int
	busy  bool
	mu    sync.Mutex // guards stats
	stats distributed.Stats
}

var _ *distributed.Group = (*Group)(nil)

// hub is where the ranks meet.
type hub struct {
	mu       sync.Mutex
	size     int
	calls    []*call // of the operation under way, by rank
	done     chan struct{}
	err      error
	failed   chan struct{}
	children []*hub // groups that were split off
}

// call is what one rank asks for.
type call struct {
	op       string
	dst, src []byte
	dt       distributed.DType
	sizes    []int

	color, key int
	child      *Group // what a split has made for this rank
}

// New makes a group of n ranks.
func New(n int) []*Group {
	_, groups := newHub(n)
	return groups
}

func newHub(n int) (*hub, []*Group) {
	h := &hub{size: n, calls: make([]*call, n), done: make(chan struct{}), failed: make(chan struct{})}
	groups := make([]*Group, n)
	for r := range groups {
		groups[r] = &Group{hub: h, rank: r}
	}
	return h, groups
}

// Rank is the number of this rank.
func (g *Group) Rank() int { return g.rank }

// Size is the number of ranks.
func (g *Group) Size() int { return g.hub.size }

// Kind is "moetest".
func (g *Group) Kind() string { return "moetest" }

// AllSum sums Float16 or Float32 in the order of the ranks, Float16 in float32
// with one rounding at the end.
func (g *Group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.StartAllSum(ctx, dst, src, dt).Wait()
}

// StartAllSum notes the operation, which takes place when all ranks wait.
func (g *Group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) distributed.Pending {
	c := &call{op: "all_sum", dst: dst, src: src, dt: dt}
	if len(dst) != len(src) || dt != distributed.Float16 && dt != distributed.Float32 {
		return g.start(ctx, c, fmt.Errorf("%d bytes of %v to %d: %w", len(src), dt, len(dst), distributed.ErrArgument))
	}
	if len(dst) > 0 && &dst[0] != &src[0] {
		poison(dst)
	}
	return g.start(ctx, c, nil)
}

// StartAllGatherV notes the operation, which takes place when all ranks wait.
func (g *Group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) distributed.Pending {
	c := &call{op: "all_gather", dst: dst, sizes: slices.Clone(sizes)}
	at := 0
	for r, n := range sizes {
		if r != g.rank && at+n <= len(dst) {
			poison(dst[at : at+n])
		}
		at += n
	}
	if len(sizes) != g.Size() || at != len(dst) {
		return g.start(ctx, c, fmt.Errorf("sizes %v for %d bytes: %w", sizes, len(dst), distributed.ErrArgument))
	}
	return g.start(ctx, c, nil)
}

// Split makes groups of the ranks that give the same color; see
// distributed.Members. They fail with the group.
func (g *Group) Split(ctx context.Context, color, key int) (*distributed.Group, error) {
	c := &call{op: "split", color: color, key: key}
	if err := g.start(ctx, c, nil).Wait(); err != nil || c.child == nil {
		return nil, err
	}
	return c.child, nil
}

// Barrier returns when every rank has called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.start(ctx, &call{op: "barrier"}, nil).Wait()
}

// poison fills b with halves and floats that are NaN.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// pending is an operation of one rank.
type pending struct {
	g    *Group
	ctx  context.Context
	call *call
	err  error
}

func (g *Group) start(ctx context.Context, c *call, err error) distributed.Pending {
	if g.busy {
		err = distributed.ErrBusy
	}
	g.busy = true
	return &pending{g, ctx, c, err}
}

// Wait joins the other ranks; the last one computes for all.
func (p *pending) Wait() error {
	h := p.g.hub
	if p.err != nil {
		return p.fail(p.err)
	}
	p.g.busy = false
	h.mu.Lock()
	if h.err != nil {
		h.mu.Unlock()
		return p.fail(h.err)
	}
	h.calls[p.g.rank] = p.call
	done := h.done
	if !slices.Contains(h.calls, nil) {
		if err := h.compute(); err != nil {
			h.mu.Unlock()
			p.g.Fail(err)
			return p.fail(err)
		}
		clear(h.calls)
		h.done = make(chan struct{})
		close(done)
	}
	h.mu.Unlock()
	select {
	case <-done:
		p.g.count(len(p.call.dst))
		return nil
	case <-h.failed:
		h.mu.Lock()
		defer h.mu.Unlock()
		return p.fail(h.err)
	case <-p.ctx.Done():
		p.g.Fail(context.Cause(p.ctx))
		return p.fail(context.Cause(p.ctx))
	}
}

func (p *pending) fail(err error) error {
	return &distributed.OpError{Op: p.call.op, Rank: p.g.rank, Peer: -1, Err: err}
}

// compute does the operation for all ranks. mu is held.
func (h *hub) compute() error {
	calls := h.calls
	first := calls[0]
	for r, c := range calls {
		if c.op != first.op || c.dt != first.dt || len(c.dst) != len(first.dst) || !slices.Equal(c.sizes, first.sizes) {
			return fmt.Errorf("rank 0 calls %s of %d bytes, rank %d %s of %d: %w",
				first.op, len(first.dst), r, c.op, len(c.dst), distributed.ErrDesync)
		}
	}
	switch first.op {
	case "all_sum":
		sum := addAll(calls)
		for _, c := range calls {
			copy(c.dst, sum)
		}
	case "all_gather":
		all, at := []byte{}, 0
		for r, n := range first.sizes {
			all = append(all, calls[r].dst[at:at+n]...)
			at += n
		}
		for _, c := range calls {
			copy(c.dst, all)
		}
	case "split":
		return h.part()
	}
	return nil
}

// part makes the groups of a split. mu is held.
func (h *hub) part() error {
	colors, keys := make([]int, h.size), make([]int, h.size)
	for r, c := range h.calls {
		if c.color < distributed.Undefined {
			return fmt.Errorf("rank %d splits with color %d: %w", r, c.color, distributed.ErrArgument)
		}
		colors[r], keys[r] = c.color, c.key
	}
	for _, p := range distributed.Members(colors, keys) {
		child, groups := newHub(len(p.Members))
		h.children = append(h.children, child)
		for i, r := range p.Members {
			h.calls[r].child = groups[i]
		}
	}
	return nil
}

// addAll is the sum of src over the ranks, from rank 0 on.
func addAll(calls []*call) []byte {
	size := calls[0].dt.Size()
	sum := make([]byte, len(calls[0].src))
	for at := 0; at < len(sum); at += size {
		var s float32
		for r, c := range calls {
			v := load(c.src[at:], size)
			if r == 0 {
				s = v
			} else {
				s += v
			}
		}
		if size == 2 {
			binary.LittleEndian.PutUint16(sum[at:], float16.Fromfloat32(s).Bits())
		} else {
			binary.LittleEndian.PutUint32(sum[at:], math.Float32bits(s))
		}
	}
	return sum
}

func load(b []byte, size int) float32 {
	if size == 2 {
		return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32()
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// Fail ends the group, and those that were split off it.
func (g *Group) Fail(cause error) { g.hub.fail(cause) }

func (h *hub) fail(cause error) {
	h.mu.Lock()
	if h.err == nil {
		h.err = cause
		close(h.failed)
	}
	children := h.children
	h.mu.Unlock()
	for _, c := range children {
		c.fail(cause)
	}
}

func (g *Group) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Ops++
	g.stats.Sent += uint64(n)
	g.stats.Received += uint64(n)
}

// Stats counts operations and the bytes of their results.
func (g *Group) Stats() distributed.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// Close fails the group with ErrClosed.
func (g *Group) Close() error {
	g.Fail(distributed.ErrClosed)
	return nil
}

func (g *Group) unavailable(op string) error {
	return &distributed.OpError{Op: op, Rank: g.rank, Peer: -1, Err: distributed.ErrUnavailable}
}

// AllMax is not available.
func (g *Group) AllMax(context.Context, []byte, []byte, distributed.DType) error {
	return g.unavailable("all_max")
}

// AllMin is not available.
func (g *Group) AllMin(context.Context, []byte, []byte, distributed.DType) error {
	return g.unavailable("all_min")
}

// AllGather is not available.
func (g *Group) AllGather(context.Context, []byte, []byte) error { return g.unavailable("all_gather") }

// SumScatter is not available.
func (g *Group) SumScatter(context.Context, []byte, []byte, distributed.DType) error {
	return g.unavailable("sum_scatter")
}

// Send is not available.
func (g *Group) Send(context.Context, []byte, int) error { return g.unavailable("send") }

// Recv is not available.
func (g *Group) Recv(context.Context, []byte, int) error { return g.unavailable("recv") }

// SendRecv is not available.
func (g *Group) SendRecv(context.Context, []byte, int, []byte, int) error {
	return g.unavailable("send_recv")
}

// Broadcast is not available.
func (g *Group) Broadcast(context.Context, []byte, int) error { return g.unavailable("broadcast") }
