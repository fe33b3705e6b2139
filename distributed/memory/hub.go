package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// hub is where the ranks of a group meet.
type hub struct {
	size   int
	joined chan struct{} // closed when all ranks have joined

	mu    sync.Mutex
	here  []bool  // [size] which ranks have joined
	calls []*call // [size] what each rank waits for, nil for nothing
	gone  []error // [size] why each rank left, nil if it has not
}

// call is what one rank waits for.
type call struct {
	op        *distributed.Op
	sent, got bool // which halves of a message are done
	heard     time.Time
	ended     chan error // receives the one result
}

func newHub(size int) *hub {
	return &hub{size: size, joined: make(chan struct{}), here: make([]bool, size), calls: make([]*call, size), gone: make([]error, size)}
}

// join waits for all ranks.
func (h *hub) join(ctx context.Context, l *distributed.Link) error {
	h.mu.Lock()
	if h.size != l.Size || h.here[l.Rank] {
		h.mu.Unlock()
		return fmt.Errorf("%w: rank %d of %d joins a group of %d ranks twice or with another size", distributed.ErrBootstrap, l.Rank, l.Size, h.size)
	}
	h.here[l.Rank] = true
	if !slices.Contains(h.here, false) {
		close(h.joined)
	}
	h.mu.Unlock()
	select {
	case <-h.joined:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("%w: %w; rank %d has not joined", distributed.ErrBootstrap, context.Cause(ctx), slices.Index(h.here, false))
	}
}

// enter records the call of a rank and completes whatever is now possible.
func (h *hub) enter(rank int, c *call) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone[rank] != nil {
		return h.gone[rank]
	}
	h.calls[rank] = c
	h.settle()
	return nil
}

// leave takes a rank out of the group.
func (h *hub) leave(rank int, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone[rank] != nil {
		return
	}
	h.gone[rank] = cause
	h.end(rank, cause)
	h.settle()
}

// end ends the call of a rank, if it has one. mu is held here and in all
// methods that follow except late.
func (h *hub) end(rank int, err error) {
	if c := h.calls[rank]; c != nil {
		c.heard = time.Now()
		c.ended <- err
		h.calls[rank] = nil
	}
}

// late ends a call at its deadline and names the ranks that are missing.
func (h *hub) late(rank int, c *call, timeout time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[rank] != c {
		return <-c.ended // it ended meanwhile
	}
	h.calls[rank] = nil
	var who []string
	first := -1
	for p := range h.size {
		if p != rank && h.calls[p] == nil && h.needs(rank, c, p) {
			if first < 0 {
				first = p
			}
			who = append(who, fmt.Sprintf("rank %d", p))
		}
	}
	return &distributed.Suspicion{Peer: first, Err: fmt.Errorf("%w: not delivered within %v: %s", distributed.ErrTimeout, timeout, strings.Join(who, ", "))}
}

// needs reports whether a call still needs a peer.
func (h *hub) needs(rank int, c *call, peer int) bool {
	if !c.op.Kind.Message() {
		return peer != rank
	}
	return c.op.To == peer && !c.sent || c.op.From == peer && !c.got
}

// settle completes or fails whatever it can among the current calls.
func (h *hub) settle() {
	h.messages()
	for r, c := range h.calls {
		if c == nil {
			continue
		}
		for p := range h.size {
			if h.gone[p] != nil && h.needs(r, c, p) {
				h.end(r, &distributed.Suspicion{Peer: p, Err: fmt.Errorf("%w: it left: %w", distributed.ErrPeerGone, h.gone[p])})
				break
			}
			other := h.calls[p]
			if other != nil && h.needs(r, c, p) && (!other.op.Kind.Message() || h.needs(p, other, r)) && !fits(c.op, other.op) {
				// Both ranks get the error, because arriving first does not make a rank
				// the culprit.
				err := fmt.Errorf("%w: rank %d runs %s, rank %d runs %s", distributed.ErrDesync, r, describe(c.op), p, describe(other.op))
				h.end(r, &distributed.Suspicion{Peer: p, Err: err})
				h.end(p, &distributed.Suspicion{Peer: r, Err: err})
				break
			}
		}
	}
	if slices.Contains(h.calls, nil) || h.calls[0].op.Kind.Message() {
		return
	}
	h.compute()
	for r := range h.calls {
		h.end(r, nil)
	}
}

// fits reports whether two operations whose ranks wait for each other can be
// the same operation.
func fits(a, b *distributed.Op) bool {
	if a.Kind.Message() || b.Kind.Message() {
		return a.Kind.Message() && b.Kind.Message()
	}
	same := a.Kind == b.Kind && a.Seq == b.Seq && a.DType == b.DType && a.Root == b.Root && slices.Equal(a.Sizes, b.Sizes)
	if a.Sizes != nil {
		return same // lengths differ by rank
	}
	return same && len(a.Dst) == len(b.Dst) && len(a.Src) == len(b.Src)
}

func describe(op *distributed.Op) string {
	s := fmt.Sprintf("%v #%d of %d bytes", op.Kind, op.Number, max(len(op.Src), len(op.Dst)))
	if op.DType != distributed.NoDType {
		s += fmt.Sprintf(" of %v", op.DType)
	}
	return s
}

// messages transfers every message with a waiting sender and receiver.
func (h *hub) messages() {
	for r, c := range h.calls {
		if c == nil || !c.op.Kind.Message() || c.op.To < 0 || c.sent {
			continue
		}
		p := c.op.To
		to := h.calls[p]
		if to == nil || !to.op.Kind.Message() || to.op.From != r || to.got {
			continue
		}
		if len(to.op.Dst) != len(c.op.Src) {
			err := fmt.Errorf("%w: rank %d sends %d bytes, rank %d receives %d", distributed.ErrDesync, r, len(c.op.Src), p, len(to.op.Dst))
			h.end(r, &distributed.Suspicion{Peer: p, Err: err})
			h.end(p, &distributed.Suspicion{Peer: r, Err: err})
			continue
		}
		copy(to.op.Dst, c.op.Src)
		c.op.Sent(int64(len(c.op.Src)))
		to.op.Received(int64(len(c.op.Src)))
		c.sent, to.got = true, true
	}
	for r, c := range h.calls {
		if c != nil && c.op.Kind.Message() && (c.sent || c.op.To < 0) && (c.got || c.op.From < 0) {
			h.end(r, nil)
		}
	}
}

// compute performs a collective operation for all ranks.
func (h *hub) compute() {
	first := h.calls[0].op
	part := func(r int, b []byte) []byte {
		from, to := h.calls[r].op.Part(r)
		return b[from:to]
	}
	blocks := make([][]byte, h.size)
	switch first.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin:
		for r, c := range h.calls {
			blocks[r] = c.op.Src
		}
		result := make([]byte, len(first.Dst))
		reduce.Reduce(reduce.ByKind(first.Kind), first.DType, result, blocks...)
		for _, c := range h.calls {
			copy(c.op.Dst, result)
		}
	case distributed.ReduceScatter:
		for r, c := range h.calls {
			for p, other := range h.calls {
				blocks[p] = part(r, other.op.Src)
			}
			reduce.Reduce(reduce.Sum, first.DType, c.op.Dst, blocks...)
		}
	case distributed.AllGather, distributed.AllGatherV, distributed.Agree:
		for r, c := range h.calls {
			for _, other := range h.calls {
				copy(part(r, other.op.Dst), part(r, c.op.Dst))
			}
		}
	case distributed.Gather:
		for r, c := range h.calls {
			copy(part(r, h.calls[first.Root].op.Dst), c.op.Src)
		}
	case distributed.Broadcast:
		for _, c := range h.calls {
			copy(c.op.Dst, h.calls[first.Root].op.Dst)
		}
	case distributed.Barrier:
	}
	for r, c := range h.calls {
		sent, received := h.volume(r, c.op)
		c.op.Sent(int64(sent))
		c.op.Received(int64(received))
	}
}

// volume returns the bytes that a rank sends and receives, counted as if all
// ranks exchanged their parts with all others.
func (h *hub) volume(rank int, op *distributed.Op) (sent, received int) {
	others := h.size - 1
	switch op.Kind {
	case distributed.AllGather, distributed.AllGatherV, distributed.Agree:
		from, to := op.Part(rank)
		return (to - from) * others, len(op.Dst) - (to - from)
	case distributed.ReduceScatter:
		return len(op.Src) - len(op.Dst), len(op.Dst) * others
	case distributed.Gather:
		if rank == op.Root {
			return 0, len(op.Dst) - len(op.Src)
		}
		return len(op.Src), 0
	case distributed.Broadcast:
		if rank == op.Root {
			return len(op.Dst) * others, 0
		}
		return 0, len(op.Dst)
	}
	return len(op.Src) * others, len(op.Src) * others
}
