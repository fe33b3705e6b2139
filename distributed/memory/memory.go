// Package memory is a transport between goroutines of one process, for tests of
// code that computes over a group. It is as lazy as the contract allows: an
// operation takes place when the last rank waits for it, and until then poison
// fills its destination, so that a rank that reads its result too early, or
// changes its input too early, computes a wrong result. Groups makes a complete
// group for a test.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"ringmaster/distributed"
)

// Network connects ranks: those that connect with the same group id, epoch and
// token form a group. It is the distributed.Transport of all of them.
type Network struct {
	mu   sync.Mutex
	hubs map[name]*hub
}

type name struct {
	group, token string
	epoch        uint32
}

var _ distributed.Transport = (*Network)(nil)

// NewNetwork makes a network without groups.
func NewNetwork() *Network { return &Network{hubs: map[name]*hub{}} }

// Name returns "memory".
func (*Network) Name() string { return "memory" }

// Listen returns an address for any host; nothing listens there.
func (*Network) Listen(host string) (string, error) { return host + ":0", nil }

// Probe returns nil, because every rank of a network reaches all others.
func (*Network) Probe(context.Context, string) error { return nil }

// Close does nothing.
func (*Network) Close() error { return nil }

// Connect implements distributed.Transport.
func (n *Network) Connect(ctx context.Context, l distributed.Link) (*distributed.Group, error) {
	return distributed.Form(ctx, l, n.Open)
}

// Open is the bring-up: it returns a rank's driver once all ranks have called
// Open. Tests can wrap their own drivers around it.
func (n *Network) Open(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
	n.mu.Lock()
	k := name{l.GroupID, string(l.Token), l.Epoch}
	h := n.hubs[k]
	if h == nil {
		h = newHub(l.Size)
		n.hubs[k] = h
	}
	n.mu.Unlock()
	if err := h.join(ctx, &l); err != nil {
		return nil, err
	}
	return &driver{network: n, hub: h, rank: l.Rank, timeout: l.OpTimeout}, nil
}

// opTimeout is the OpTimeout of Groups. It is long enough for a busy machine
// and short enough to end a test that hangs.
const opTimeout = time.Minute

// Groups makes a group of n ranks on a network of its own and returns every
// rank's side of it.
func Groups(n int) []*distributed.Group {
	network := NewNetwork()
	groups := make([]*distributed.Group, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			g, err := network.Connect(context.Background(), distributed.Link{
				Rank: r, Size: n, GroupID: "test", Token: bytes.Repeat([]byte{1}, 32), Addrs: make([]string, n), OpTimeout: opTimeout,
			})
			if err != nil {
				panic(fmt.Sprintf("memory: %v", err)) // nothing in this package can fail here
			}
			groups[r] = g
		})
	}
	all.Wait()
	return groups
}

// driver is the distributed.Driver of one rank.
type driver struct {
	network *Network
	hub     *hub
	rank    int
	timeout time.Duration
}

// Start fills the destination of the operation with poison.
func (d *driver) Start(op *distributed.Op) error {
	switch op.Kind {
	case distributed.AllGather, distributed.AllGatherV, distributed.Gather, distributed.Agree:
		if len(op.Dst) == 0 {
			return nil
		}
		from, to := op.Part(d.rank)
		if op.Src != nil {
			copy(op.Dst[from:to], op.Src)
		}
		poison(op.Dst[:from])
		poison(op.Dst[to:])
	case distributed.Broadcast:
		if op.Root != d.rank {
			poison(op.Dst)
		}
	default:
		if len(op.Dst) > 0 && (len(op.Src) == 0 || &op.Dst[0] != &op.Src[0]) {
			poison(op.Dst)
		}
	}
	return nil
}

// poison fills b with bytes that are NaN as floats of any width.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// Wait waits for the other ranks; the last one to arrive computes for all.
func (d *driver) Wait(op *distributed.Op) (distributed.Timing, error) {
	c := &call{op: op, ended: make(chan error, 1)}
	if err := d.hub.enter(d.rank, c); err != nil {
		return distributed.Timing{}, err
	}
	timer := time.NewTimer(time.Until(op.Deadline))
	defer timer.Stop()
	var err error
	select {
	case err = <-c.ended:
	case <-timer.C:
		err = d.hub.late(d.rank, c, d.timeout)
	}
	return distributed.Timing{Heard: c.heard}, err
}

// Abort leaves the group; ranks that need this one get the cause.
func (d *driver) Abort(cause error) { d.hub.leave(d.rank, cause) }

// Close leaves the group like Abort, but in good order.
func (d *driver) Close() error {
	d.hub.leave(d.rank, distributed.ErrClosed)
	return nil
}

// Child forms a group on the same network.
func (d *driver) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	return d.network.Connect(ctx, c.Link)
}

// Describe implements distributed.Driver.
func (d *driver) Describe() distributed.Description {
	return distributed.Description{Kind: "memory", Topology: fmt.Sprintf("%d goroutines", d.hub.size)}
}
